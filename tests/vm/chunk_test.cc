// A base that is read over the chunk socket: only what the guest touches is asked for, every branch has a socket of its own,
// and a daemon that dies costs time and nothing else. The daemon is the tests' own (image/testing/chunk_daemon.h).
#include <gmock/gmock.h>

#include "image/testing/chunk_daemon.h"
#include "image/testing/patterns.h"
#include "vm/harness/vm_test.h"

namespace ramet::vmtest {
namespace {

using guests::kAnswer;
using guests::kRead;
using guests::kStep;
using image::kChunkBlocks;
using image::kMaxAnswerBlocks;
using image::testing::ChunkDaemon;
using image::testing::PatternBase;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kBlocks = 2 * kChunkBlocks;

UniqueFd raw_file() {
  UniqueFd file = make_memfd("raw", 0).value();
  std::string bytes(kBlocks * image::kBlockBytes, '\0');
  const iovec v{bytes.data(), bytes.size()};
  EXPECT_TRUE(PatternBase(kBlocks).read({0, kBlocks}, {&v, 1}, image::Wait::kAllowed));
  EXPECT_TRUE(pwrite_all(file.get(), as_bytes(bytes), 0));
  return file;
}
uint32_t content_of(uint64_t block) { return static_cast<uint32_t>(PatternBase::version_of(block)); }

// The inodes of its sockets.
std::set<uint64_t> sockets_of(const Vm& vm) {
  std::set<uint64_t> out;
  for (const Descriptor& d : descriptors_of(vm.pid()))
    if (d.target.starts_with("socket:")) out.insert(d.inode);
  return out;
}

class ChunkTest : public VmTest {
 protected:
  std::unique_ptr<ChunkDaemon> new_daemon() { return std::make_unique<ChunkDaemon>(raw_.duplicate().value(), kBlocks); }
  std::vector<Disk> disks() {
    return {Disk{.size_bytes = kBlocks * image::kBlockBytes, .chunks = [this] { return daemon->connect(); }}};
  }
  std::unique_ptr<Vm> boot_chunked() { return boot("blk", BootOptions{.disks = disks()}); }
  // Tells the monitor of a new socket of the present daemon, as one that adopts it does.
  Status attach(Vm& vm, const std::string& disk = "vda") {
    const UniqueFd socket = daemon->connect();
    return vm.control().attach_base(disk, socket.get(), vm.patience());
  }
  // Leaves the guest in a read that nobody answers.
  void begin_read_without_answer(Vm& vm, uint32_t block) {
    const size_t before = daemon->asked().size();
    daemon->be_silent(true);
    const uint32_t read = guests::word(kRead, block);
    must(vm.push(std::span(&read, 1)));
    daemon->wait_until([&] { return daemon->asked().size() > before; });
  }
  void replace_daemon() {
    daemon->lie([](int, const image::Ask&) { return true; });  // takes what it was asked with it
    daemon = new_daemon();
  }

  std::unique_ptr<ChunkDaemon> daemon;

 private:
  void SetUp() override {
    VmTest::SetUp();
    if (IsSkipped()) return;
    raw_ = raw_file();
    daemon = new_daemon();
  }
  void TearDown() override {
    daemon.reset();
    raw_.reset();
    VmTest::TearDown();
  }
  UniqueFd raw_;
};

TEST_F(ChunkTest, OnlyWhatTheGuestReadsIsAskedFor) {
  std::unique_ptr<Vm> vm = boot_chunked();
  EXPECT_THAT(daemon->asked(), IsEmpty());
  for (const uint32_t block : {1u, 200u, 5000u}) EXPECT_EQ(must(vm->command(kRead, block)), content_of(block));
  EXPECT_THAT(daemon->asked(), ElementsAre(1, 200, 5000));
  EXPECT_EQ(daemon->blocks_sent().size(), 3 * kMaxAnswerBlocks);
  EXPECT_EQ(must(vm->command(kStep, 5)), 5u);  // block 0: read from the base once, then it is the overlay's
  EXPECT_THAT(daemon->asked(), ElementsAre(1, 200, 5000, 0));
}

TEST_F(ChunkTest, AHeldChunkIsReadWithoutAsking) {
  daemon->give_descriptors(true);
  std::unique_ptr<Vm> vm = boot_chunked();
  for (uint32_t block = 0; block < 300; block += 3) EXPECT_EQ(must(vm->command(kRead, block + 1)), content_of(block + 1));
  EXPECT_THAT(daemon->asked(), ElementsAre(1));
  daemon->give_back(0);  // to a guest that asks for nothing: its event loop hears it
  daemon->wait_until([&] { return daemon->given() == 0; });
  EXPECT_EQ(must(vm->command(kRead, 2)), content_of(2));
}

TEST_F(ChunkTest, ChildrenReadOnSocketsOfTheirOwnAndKeepWhatWasHeld) {
  daemon->give_descriptors(true);
  std::unique_ptr<Vm> parent = boot_chunked();
  EXPECT_EQ(must(parent->command(kRead, 1)), content_of(1));
  must(parent->command(kStep, 2));
  std::vector<std::unique_ptr<Vm>> children = must(parent->fork_many(3));
  children.push_back(must(parent->fork_one()));
  for (const std::unique_ptr<Vm>& child : children) {
    EXPECT_EQ(must(child->command(kRead, 2)), content_of(2));  // held
    EXPECT_EQ(must(child->command(kStep, 3)), 5u);
    EXPECT_EQ(must(child->command(kRead, 5000)), content_of(5000));
  }
  EXPECT_EQ(must(parent->command(kRead, 0)), 2u);
  EXPECT_EQ(must(parent->command(kRead, 5000)), content_of(5000));
  EXPECT_THAT(daemon->asked(), ElementsAre(1, 5000, 5000, 5000, 5000, 5000));
  std::vector<image::Hello> hellos = daemon->hellos();
  ASSERT_THAT(hellos, SizeIs(5));
  hellos.erase(hellos.begin());
  EXPECT_THAT(hellos, Each(Field(&image::Hello::held, ElementsAre(0))));
  for (const uint64_t chunk : {0, 1}) daemon->give_back(chunk);  // all of them hear it, parent and children
  daemon->wait_until([&] { return daemon->given() == 0; });
  std::set<uint64_t> sockets = sockets_of(*parent);
  for (const std::unique_ptr<Vm>& child : children)
    for (const uint64_t socket : sockets_of(*child)) EXPECT_TRUE(sockets.insert(socket).second) << "shared";
}

TEST_F(ChunkTest, ChildrenOfAZygoteReadTheBase) {
  const Image image = must(boot_chunked()->capture());
  std::unique_ptr<Vm> zygote = must(Vm::zygote(image, disks()));
  std::vector<std::unique_ptr<Vm>> children = must(zygote->fork_many(2));
  EXPECT_EQ(must(children[0]->command(kStep, 2)), 2u);
  EXPECT_EQ(must(children[1]->command(kRead, 5000)), content_of(5000));
  EXPECT_EQ(must(children[0]->command(kRead, 4)), content_of(4));
}

TEST_F(ChunkTest, AReadOutlivesItsDaemon) {
  daemon->give_descriptors(true);
  std::unique_ptr<Vm> vm = boot_chunked();
  EXPECT_EQ(must(vm->command(kRead, 1)), content_of(1));
  begin_read_without_answer(*vm, 5000);
  replace_daemon();
  must(attach(*vm));
  EXPECT_EQ(must(vm->wait_for_kind(kAnswer, within(kSoon))), content_of(5000));
  EXPECT_THAT(daemon->hellos()[0].held, ElementsAre(0));
  EXPECT_EQ(must(vm->command(kRead, 2)), content_of(2));
  std::unique_ptr<Vm> child = must(vm->fork_one());
  EXPECT_EQ(must(child->command(kRead, 7)), content_of(7));
}

TEST_F(ChunkTest, AForkDuringSuchAReadFailsAndTheParentGoesOn) {
  std::unique_ptr<Vm> parent = boot_chunked();
  begin_read_without_answer(*parent, 5000);
  const Result<std::unique_ptr<Vm>> child = parent->fork_one();
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().kind(), ErrorKind::kNotQuiescent);
  daemon->be_silent(false);
  EXPECT_EQ(must(parent->wait_for_kind(kAnswer, within(kSoon))), content_of(5000));
  EXPECT_EQ(must(must(parent->fork_one())->command(kRead, 1)), content_of(1));
}

TEST_F(ChunkTest, AMachineInSuchAReadStopsWhenItShall) {
  std::unique_ptr<Vm> vm = boot_chunked();
  begin_read_without_answer(*vm, 5000);
  replace_daemon();
  must(vm->control().ping(vm->patience()));
  must(vm->control().stop(vm->patience()));
  EXPECT_TRUE(vm->wait_gone(within(kSoon)));
}

TEST_F(ChunkTest, ABlockThatTheDaemonCannotReadIsAnErrorOfThatBlock) {
  daemon->lie([](int socket, const image::Ask& ask) {
    if (ask.block == 1) ChunkDaemon::say(socket, image::Failed{ask.id, ErrorKind::kCorrupt, "frame 3 is damaged"});
    return ask.block == 1;
  });
  std::unique_ptr<Vm> vm = boot_chunked();
  EXPECT_FALSE(vm->command(kRead, 1));
  EXPECT_EQ(must(vm->command(kRead, 2)), content_of(2));
}

TEST_F(ChunkTest, WhatDoesNotFitIsRefused) {
  std::vector<Disk> both = disks();
  both[0].base_path = "/dev/null";
  const Result<std::unique_ptr<Vm>> twice = Vm::boot({.kernel = guest_path("blk"), .disks = both});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().kind(), ErrorKind::kInvalid);
  std::unique_ptr<Vm> chunked = boot_chunked();
  EXPECT_EQ(attach(*chunked, "vdb").error().kind(), ErrorKind::kNotFound);
  std::unique_ptr<Vm> raw = boot("blk", {.disks = {Disk{.size_bytes = 1 << 20}}});
  EXPECT_EQ(attach(*raw).error().kind(), ErrorKind::kConflict);
}

}  // namespace
}  // namespace ramet::vmtest
