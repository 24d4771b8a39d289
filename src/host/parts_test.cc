// The small parts: names, overlay files, control groups on a plain directory, admission, watcher, background, monitor link.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/socket.h"
#include "host/admission.h"
#include "host/background.h"
#include "host/cgroup.h"
#include "host/crash_point.h"
#include "host/ids.h"
#include "host/machine.h"
#include "host/metering.h"
#include "host/monitor_link.h"
#include "host/overlay_store.h"

namespace ramet::host {
namespace {

class PartsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/ramet-parts-XXXXXX";
    paths_.state_dir = ::mkdtemp(path);
    paths_.runtime_dir = paths_.state_dir;
    ASSERT_TRUE(make_directories(paths_.overlays()));
    ASSERT_TRUE(make_directories(paths_.sockets()));
  }
  void TearDown() override {
    std::error_code ec;
    std::filesystem::remove_all(paths_.state_dir, ec);
  }
  Paths paths_;
};

TEST(Ids, AreUniqueAndRecognised) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; i++) {
    const std::string id = new_id("sb");
    EXPECT_TRUE(is_id(id)) << id;
    seen.insert(id);
  }
  EXPECT_EQ(seen.size(), 1000u);
  for (const char* bad : {"", "sb-", "../../../../etc/a", "sb-ABCDEFGHIJKLM", "sb_abcdefghijklm", "sb-abcdefghijklmn"})
    EXPECT_FALSE(is_id(bad)) << bad;
  EXPECT_EQ(new_machine_id().size(), 32u);
}

TEST_F(PartsTest, OverlaysAreMadeOnceSealedAndRemoved) {
  const OverlayStore store(paths_);
  const std::string id = new_id("ov");
  Result<OverlayFiles> files = store.create(id);
  ASSERT_TRUE(files) << files.error().to_string();
  EXPECT_EQ(store.create(id).error().kind(), ErrorKind::kExists);
  ASSERT_TRUE(pwrite_all(files->data_rw.get(), as_bytes(std::string(8192, 'x')), 0));
  EXPECT_GE(store.allocated_bytes(id), 8192u);
  const Result<bool> sealed = store.seal(id);
  ASSERT_TRUE(sealed) << sealed.error().to_string();
  if (*sealed) {
    EXPECT_FALSE(pwrite_all(files->data_rw.get(), as_bytes("y"), 0)) << "a descriptor from before still writes";
  }
  EXPECT_TRUE(store.open_read(id));
  EXPECT_EQ(*store.present(), std::vector<std::string>{id});
  EXPECT_TRUE(store.remove(id));
  EXPECT_TRUE(store.remove(id)) << "removing twice is no error";
  EXPECT_TRUE(store.present()->empty());
  EXPECT_FALSE(store.remove("../lock"));
}

TEST_F(PartsTest, WithoutCgroup2EverythingGoesOnUnlimited) {
  const CgroupTree tree(paths_.state_dir, paths_.state_dir);
  EXPECT_FALSE(tree.usable());
  EXPECT_FALSE(tree.report().usable);
  EXPECT_TRUE(tree.make_family("f", {1 << 20}));
  EXPECT_TRUE(tree.make_leaf("f", "m", {}));
  EXPECT_TRUE(tree.move("f", "m", ::getpid()));
  EXPECT_FALSE(tree.contains("f", ::getpid()).has_value());
  EXPECT_TRUE(tree.remove_leaf("f", "m"));
  EXPECT_TRUE(tree.leaves().empty());
}

TEST_F(PartsTest, DaemonsOfOneHostHaveTreesOfTheirOwn) {
  const CgroupTree ours("/sys/fs/cgroup", paths_.state_dir);
  if (!ours.usable()) GTEST_SKIP() << "no writable cgroup v2";
  std::string theirs_root;
  {
    const CgroupTree theirs("/sys/fs/cgroup", paths_.state_dir + "/other");
    theirs_root = theirs.report().root;
    ASSERT_TRUE(theirs.make_family("f", {}));
    EXPECT_EQ(theirs.families(), std::vector<std::string>{"f"});
    EXPECT_TRUE(ours.families().empty());
    EXPECT_TRUE(ours.remove_family("f"));
    EXPECT_EQ(theirs.families(), std::vector<std::string>{"f"});
    ASSERT_TRUE(theirs.remove_family("f"));
  }
  EXPECT_NE(::access(theirs_root.c_str(), F_OK), 0);
}

TEST_F(PartsTest, ALeafHoldsItsProcessAndGoesWithIt) {
  const CgroupTree tree("/sys/fs/cgroup", paths_.state_dir);
  if (!tree.usable()) GTEST_SKIP() << "no writable cgroup v2";
  const std::string family = new_id("ts");
  ASSERT_TRUE(tree.make_family(family, {}));
  ASSERT_TRUE(tree.make_leaf(family, "one", {}));
  SpawnOptions spawn;
  spawn.argv = {"/bin/sleep", "60"};
  Result<ChildProcess> child = ChildProcess::spawn(spawn);
  ASSERT_TRUE(child);
  ASSERT_TRUE(tree.move(family, "one", child->pid()));
  EXPECT_EQ(tree.members(family, "one"), std::vector<pid_t>{child->pid()});
  EXPECT_EQ(tree.contains(family, child->pid()), true);
  EXPECT_EQ(tree.contains(family, ::getpid()), false);
  ASSERT_TRUE(tree.kill_leaf(family, "one"));
  EXPECT_TRUE(child->wait(deadline_after(Milliseconds(5000))));
  EXPECT_TRUE(tree.remove_leaf(family, "one"));
  for (const std::string& f : tree.families()) EXPECT_NE(f, family);
}

TEST_F(PartsTest, AdmissionRefusesWithTheNumbers) {
  Admission roomy(paths_.state_dir, {});
  {
    const Result<Admission::Reservation> r = roomy.reserve(1 << 20, 0);
    ASSERT_TRUE(r);
    EXPECT_EQ(roomy.reserved_bytes(), 1u << 20);
  }
  EXPECT_EQ(roomy.reserved_bytes(), 0u);
  const Result<Admission::Reservation> memory = roomy.reserve(uint64_t{1} << 50, 0);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().kind(), ErrorKind::kNoMemory);
  EXPECT_EQ(roomy.reserved_bytes(), 0u);
  const Result<Admission::Reservation> disk = roomy.reserve(0, uint64_t{1} << 60);
  ASSERT_FALSE(disk);
  EXPECT_EQ(disk.error().kind(), ErrorKind::kNoSpace);
}

TEST(AdmissionFamily, KeepsRoomForTheParentToRewriteAllItsPages) {
  const pid_t self = ::getpid();
  const uint64_t mine = anonymous_bytes(self);
  ASSERT_GT(mine, 0u);
  const uint64_t room = mine + 3 * kMachineOverheadBytes + kFamilySlackBytes;
  EXPECT_TRUE(Admission::check_family(self, 3, 1 << 20, 0)) << "no limit";
  EXPECT_TRUE(Admission::check_family(self, 3, 1 << 20, (1 << 20) + 2 * room));
  const Status full = Admission::check_family(self, 3, 1 << 20, room);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind(), ErrorKind::kNoMemory);
}

TEST(Metering, SeesWhatWasWrittenAndWhatIsExclusive) {
  constexpr size_t kBytes = 4 << 20;
  Result<UniqueFd> base = make_memfd("base", kBytes);
  ASSERT_TRUE(base);
  ASSERT_TRUE(pwrite_all(base->get(), as_bytes(std::string(kBytes, 'b')), 0));
  auto* ram = static_cast<char*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, base->get(), 0));
  ASSERT_NE(ram, MAP_FAILED);
  for (size_t i = 0; i < kBytes / 4; i += 4096) ram[i] = 'w';
  const Result<MemoryUse> use = measure_memory(::getpid(), reinterpret_cast<uint64_t>(ram), kBytes);
  ::munmap(ram, kBytes);
  ASSERT_TRUE(use) << use.error().to_string();
  EXPECT_EQ(use->diverged_bytes, kBytes / 4);
  EXPECT_EQ(use->own_bytes, kBytes / 4);
  EXPECT_GE(use->share_bytes, kBytes / 4);
}

TEST(Processes, AreKnownByTheirStartTime) {
  const pid_t self = ::getpid();
  const Result<uint64_t> start = process_start_time(self);
  ASSERT_TRUE(start);
  EXPECT_TRUE(open_remembered_process(self, *start));
  EXPECT_EQ(open_remembered_process(self, *start + 1).error().kind(), ErrorKind::kNotFound);
  const Result<UniqueFd> pidfd = open_pidfd(self);
  EXPECT_EQ(pid_of_pidfd(pidfd->get()), self);
}

TEST_F(PartsTest, OpenFilesAreFoundByInode) {
  const std::string path = paths_.state_dir + "/f";
  {
    const Result<UniqueFd> fd = open_file(path, O_RDWR | O_CREAT, 0600);
    EXPECT_TRUE(process_has_open(::getpid(), path));
  }
  EXPECT_FALSE(process_has_open(::getpid(), path));
}

TEST(WatcherTest, CallsUntilUnwatched) {
  Result<std::unique_ptr<Watcher>> w = Watcher::start();
  ASSERT_TRUE(w);
  Pipe p = *make_pipe();
  std::atomic<int> calls{0};
  uint64_t token = *(*w)->watch(p.read_end.get(), [&] {
    char c;
    [[maybe_unused]] const ssize_t n = ::read(p.read_end.get(), &c, 1);
    calls++;
  });
  ASSERT_EQ(::write(p.write_end.get(), "ab", 2), 2);
  for (int i = 0; i < 200 && calls < 2; i++) ::usleep(1000);
  EXPECT_EQ(calls, 2);
  (*w)->unwatch(token);
  ASSERT_EQ(::write(p.write_end.get(), "c", 1), 1);
  ::usleep(20'000);
  EXPECT_EQ(calls, 2);
}

TEST(BackgroundTest, RunsInOrderAndDropsOnStop) {
  Background b("test");
  std::vector<int> seen;
  b.post([&] { seen.push_back(1); });
  b.post_at(deadline_after(Milliseconds(60'000)), [&] { seen.push_back(3); });
  b.post([&] { seen.push_back(2); });
  b.drain();
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
  b.stop();
  EXPECT_EQ(seen.size(), 2u);
}

// ---- a monitor of our own making at the other end of a link ----

class MonitorLinkTest : public PartsTest {
 protected:
  void SetUp() override {
    PartsTest::SetUp();
    watcher_ = std::move(*Watcher::start());
    listener_ = std::move(*listen_unix(path(), SOCK_SEQPACKET, 1));
  }
  std::string path() const { return paths_.socket("m"); }
  // Answers each request with what `make` fills in, until the link closes.
  void serve(std::function<bool(const vmm::Request&, vmm::FromVmm&)> make) {
    monitor_ = std::thread([this, make] {
      const Result<UniqueFd> c = accept_unix(listener_.get(), deadline_after(Milliseconds(5000)));
      if (!c) return;
      for (;;) {
        vmm::Request request;
        if (!vmm::control::receive(c->get(), request, deadline_after(Milliseconds(5000)))) return;
        vmm::FromVmm answer;
        answer.mutable_response()->set_id(request.id());
        if (!make(request, answer)) return;
        (void)vmm::control::send(c->get(), answer, {}, deadline_after(Milliseconds(1000))).has_value();
      }
    });
  }
  void TearDown() override {
    if (monitor_.joinable()) monitor_.join();
    PartsTest::TearDown();
  }
  Result<std::unique_ptr<MonitorLink>> connect(pid_t expected) {
    return MonitorLink::connect(*watcher_, path(), expected, {}, deadline_after(Milliseconds(2000)));
  }
  std::unique_ptr<Watcher> watcher_;
  UniqueFd listener_;
  std::thread monitor_;
};

TEST(MonitorTimes, AnyNumberIsATime) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ms_between(1'000'000, 3'500'000), 2.5);
  EXPECT_EQ(ms_between(kLeast, kMost), 0);
  EXPECT_EQ(ms_between(1, kLeast), 0);
}

TEST_F(MonitorLinkTest, FindsTheRightProcess) {
  serve([](const vmm::Request&, vmm::FromVmm& a) {
    a.mutable_response()->mutable_ok();
    return true;
  });
  const Result<std::unique_ptr<MonitorLink>> link = connect(::getpid());
  EXPECT_TRUE(link) << link.error().to_string();
}

TEST_F(MonitorLinkTest, RefusesAnotherProcess) {
  serve([](const vmm::Request&, vmm::FromVmm& a) {
    a.mutable_response()->mutable_ok();
    return true;
  });
  EXPECT_FALSE(connect(1));
}

TEST_F(MonitorLinkTest, AFailureAndASilenceAreErrors) {
  serve([](const vmm::Request& r, vmm::FromVmm& a) {
    if (r.has_stop())
      a.mutable_response()->set_id(r.id() + 1000);  // an answer to nothing
    else if (r.has_pause()) {
      a.mutable_response()->mutable_failure()->set_kind("conflict");
      a.mutable_response()->mutable_failure()->set_message("no");
    } else
      a.mutable_response()->mutable_ok();
    return true;
  });
  Result<std::unique_ptr<MonitorLink>> link = connect(::getpid());
  ASSERT_TRUE(link);
  vmm::Request pause, stop;
  pause.mutable_pause();
  stop.mutable_stop();
  EXPECT_EQ((*link)->call(pause, {}, deadline_after(Milliseconds(1000))).error().kind(), ErrorKind::kConflict);
  EXPECT_EQ((*link)->call(stop, {}, deadline_after(Milliseconds(50))).error().kind(), ErrorKind::kTimeout);
}

TEST_F(MonitorLinkTest, AHangUpFailsWhoWaits) {
  serve([](const vmm::Request& r, vmm::FromVmm& a) {
    a.mutable_response()->mutable_ok();
    return r.has_ping();
  });
  Result<std::unique_ptr<MonitorLink>> link = connect(::getpid());
  ASSERT_TRUE(link);
  vmm::Request stop;
  stop.mutable_stop();
  EXPECT_EQ((*link)->call(stop, {}, deadline_after(Milliseconds(4000))).error().kind(), ErrorKind::kUnavailable);
  EXPECT_TRUE((*link)->closed());
}

TEST_F(MonitorLinkTest, OnlyAStreamSocketIsTakenAsAStream) {
  serve([](const vmm::Request& r, vmm::FromVmm& a) {
    if (r.has_connect())
      a.mutable_response()->mutable_connected()->set_stream_fd(7);
    else
      a.mutable_response()->mutable_ok();
    return true;
  });
  Result<std::unique_ptr<MonitorLink>> link = connect(::getpid());
  ASSERT_TRUE(link);
  EXPECT_FALSE((*link)->connect_guest(1024, deadline_after(Milliseconds(1000))));
}

// A monitor of this process that does not stop talking; what a sanitizer sees when an event meets a machine that is half gone.
TEST_F(MonitorLinkTest, EventsMayComeWhileTheMachineGoes) {
  vmm::FromVmm pong, farewell;
  pong.mutable_response()->set_id(1);
  pong.mutable_response()->mutable_ok();
  farewell.mutable_event()->mutable_ended()->set_reason("a reason that no string keeps inside itself");
  const Machine::Options options{*watcher_, "m", path(), {}, {}};
  const MachineFacts facts{.id = "m", .pid = ::getpid(), .pid_start = *process_start_time(::getpid())};
  for (int round = 0; round < 30; round++) {
    monitor_ = std::thread([&] {
      const Result<UniqueFd> c = accept_unix(listener_.get(), deadline_after(Milliseconds(5000)));
      vmm::Request ping;
      if (!c || !vmm::control::receive(c->get(), ping, deadline_after(Milliseconds(5000)))) return;
      Status sent = vmm::control::send(c->get(), pong, {}, deadline_after(Milliseconds(1000)));
      while (sent) sent = vmm::control::send(c->get(), farewell, {}, deadline_after(Milliseconds(1000)));
    });
    Result<std::shared_ptr<Machine>> machine = Machine::adopt(options, facts, deadline_after(Milliseconds(5000)));
    EXPECT_TRUE(machine) << machine.error().to_string();
    if (machine) machine->reset();
    monitor_.join();
  }
}

}  // namespace
}  // namespace ramet::host
