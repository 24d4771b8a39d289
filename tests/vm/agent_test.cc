// A Debian guest in a microVM, spoken to through its agent over the monitor's vsock, across live forks.
// $RAMET_TEST_TEMPLATE names a template directory (vmlinux, initrd, disk.img); without it there is nothing to boot.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <set>
#include <thread>

#include "testing/agent_client.h"
#include "vm/harness/vm.h"

namespace ramet::vmtest {
namespace {

using namespace std::chrono_literals;
using guest::Call;

int64_t now_ms() { return monotonic_ns() / 1'000'000; }

class Agent : public testing::Test {
 protected:
  // One boot for all tests: it takes seconds where KVM itself is emulated.
  static void SetUpTestSuite() {
    const char* dir = std::getenv("RAMET_TEST_TEMPLATE");
    if (!dir) return void(skip_ = "RAMET_TEST_TEMPLATE names no template");
    if (const std::optional<std::string> reason = cannot_run()) return void(skip_ = *reason);
    const std::string base = dir;
    BootOptions options;
    options.kernel = base + "/vmlinux";
    options.initrd = base + "/initrd";
    options.cmdline = "console=ttyS0 reboot=t panic=-1 quiet";
    options.vcpus = 2;
    options.memory_mib = 512;
    options.disks = {
        {.id = "vda", .base_path = base + "/disk.img", .size_bytes = std::filesystem::file_size(base + "/disk.img")}};
    const int64_t begin = now_ms();
    Result<std::unique_ptr<Vm>> vm = Vm::boot(options);
    if (!vm) return void(skip_ = "cannot boot: " + vm.error().to_string());
    vm_ = vm->release();
    vm_->set_patience(60s);
    for (int i = 0; i < 600 && !ping(*vm_); i++) std::this_thread::sleep_for(200ms);
    std::printf("agent answers after %ld ms\n", now_ms() - begin);
  }
  static void TearDownTestSuite() {
    if (vm_) std::printf("---- console\n%s\n----\n", vm_->console()->c_str());
    delete vm_;
  }
  void SetUp() override {
    if (!vm_) GTEST_SKIP() << skip_;
  }

  static Call open(Vm& vm, const abi::Request& request) {
    Result<UniqueFd> fd = vm.control().connect_guest(abi::kAgentPort, 20s);
    Call call(fd ? std::move(*fd) : UniqueFd());
    call.send(request);
    return call;
  }
  static Call::Outcome ask(Vm& vm, const std::function<void(abi::Request&)>& fill) {
    abi::Request request;
    fill(request);
    return open(vm, request).finish();
  }
  static bool ping(Vm& vm) {
    return ask(vm, [](abi::Request& r) { r.mutable_ping(); }).result.has_pong();
  }
  static abi::Request as_root(const std::string& line) {
    abi::Request request = guest::shell(line);
    request.mutable_exec()->set_user("root");
    return request;
  }
  static std::string run(Vm& vm, const std::string& line) { return open(vm, as_root(line)).finish().out; }

  static std::string disk_troubles() {
    return run(*vm_, "grep ' / ' /proc/mounts; df /; touch /root/t 2>&1; dmesg | tail -15");
  }

  static Call::Outcome identify(Vm& vm, const std::string& name, bool thaw, int64_t clock_shift_ns = 0) {
    return ask(vm, [&](abi::Request& r) {
      abi::Identify& id = *r.mutable_identify();
      id.set_entropy(name + std::string(64 - name.size(), 'e'));
      id.set_wait_vmgenid_ms(2000);
      id.set_sandbox_id(name);
      id.set_hostname(name);
      id.set_machine_id(std::string(31, '0') + std::to_string(name.size() % 10));
      id.set_wall_clock_ns(wall_ns() + clock_shift_ns);
      id.set_thaw(thaw);
    });
  }

  // The whole road of a strict fork.
  static std::unique_ptr<Vm> strict_fork(Vm& parent, const std::string& name) {
    const int64_t t0 = now_ms();
    const Call::Outcome frozen = ask(parent, [](abi::Request& r) { r.mutable_freeze(); });
    EXPECT_TRUE(frozen.result.has_frozen()) << frozen.result.error().message();
    const int64_t t1 = now_ms();
    Result<std::unique_ptr<Vm>> child = parent.fork_one();
    const int64_t t2 = now_ms();
    EXPECT_FALSE(ask(parent, [](abi::Request& r) { r.mutable_thaw(); }).result.has_error());
    if (!child) {
      ADD_FAILURE() << child.error().to_string();
      return nullptr;
    }
    const int64_t t3 = now_ms();
    (*child)->set_patience(60s);
    const Call::Outcome done = identify(**child, name, true);
    EXPECT_TRUE(done.result.has_identified()) << done.result.error().message();
    EXPECT_TRUE(done.result.identified().vmgenid_seen()) << run(**child, "dmesg | tail -5; ls -l /sys/bus/*/drivers/vmgenid");
    std::printf("freeze %ld ms (inside %u us), fork %ld ms, thaw %ld ms, identify %ld ms (inside %u us), clock delta %.3f ms\n",
                t1 - t0, frozen.result.frozen().took_us(), t2 - t1, t3 - t2, now_ms() - t3, done.result.identified().took_us(),
                static_cast<double>(done.result.identified().clock_delta_ns()) / 1e6);
    return std::move(*child);
  }

  inline static Vm* vm_ = nullptr;
  inline static std::string skip_;
};

TEST_F(Agent, MachineIsSetUp) {
  EXPECT_EQ(run(*vm_, "cat /proc/1/comm"), "init\n");
  std::printf("%s",
              run(*vm_,
                  "cat /proc/mounts; ip -br addr; ls /sys/fs/cgroup; cat /sys/fs/cgroup/ramet.user/memory.max "
                  "/sys/fs/cgroup/ramet.user/pids.max /proc/1/oom_score_adj; free -m; ls -l /dev/fd /dev/ptmx; ulimit -n; "
                  "cat /proc/1/status | grep -E 'VmRSS|RssAnon|RssFile'; env; tty; cat "
                  "/sys/devices/system/clocksource/*/current_clocksource")
                  .c_str());
  EXPECT_EQ(run(*vm_, "sudo -n -u user sudo -n id -u"), "0\n");
}

TEST_F(Agent, NobodyNamedIsTheImagesDefaultUser) {
  EXPECT_EQ(open(*vm_, guest::shell("id -un; sudo -n id -un")).finish().out, "user\nroot\n");
}

TEST_F(Agent, IdentityIsTakenAndTheClockStepped) {
  const Call::Outcome done = identify(*vm_, "first", true, 0);
  ASSERT_TRUE(done.result.has_identified()) << done.result.error().message();
  EXPECT_TRUE(done.result.identified().crng_reseeded());
  EXPECT_EQ(run(*vm_, "hostname; echo $RAMET_SANDBOX_ID; cat /etc/machine-id"),
            "first\nfirst\n00000000000000000000000000000005\n");
  const Call::Outcome shifted = identify(*vm_, "first", true, -3600'000'000'000);
  EXPECT_TRUE(shifted.result.identified().clock_stepped());
  const Call::Outcome back = identify(*vm_, "first", true, 0);
  EXPECT_TRUE(back.result.identified().clock_stepped());
  const int64_t guest_s = std::stoll(run(*vm_, "date +%s"));
  EXPECT_NEAR(static_cast<double>(guest_s), static_cast<double>(wall_ns() / 1'000'000'000), 2.0);
}

TEST_F(Agent, ExecStreamsPtyAndTimeout) {
  const int64_t begin = now_ms();
  EXPECT_EQ(run(*vm_, "echo hi"), "hi\n");
  std::printf("exec %ld ms\n", now_ms() - begin);
  abi::Request pty = as_root("stty size; tty");
  pty.mutable_exec()->mutable_pty()->set_rows(30);
  pty.mutable_exec()->mutable_pty()->set_cols(90);
  pty.mutable_exec()->set_user("user");
  EXPECT_EQ(open(*vm_, pty).finish().out, "30 90\r\n/dev/pts/0\r\n");
  abi::Request slow = as_root("setsid sleep 600 & sleep 600");
  slow.mutable_exec()->set_timeout_ms(500);
  EXPECT_TRUE(open(*vm_, slow).finish().result.exit().timed_out());
  EXPECT_EQ(run(*vm_, "pgrep -c sleep"), "0\n");
}

TEST_F(Agent, BigOutputAndFilesCrossTheVsock) {
  const int64_t begin = now_ms();
  EXPECT_EQ(run(*vm_, "head -c 20000000 /dev/zero").size(), 20'000'000u);
  std::printf("20 MB of output in %ld ms\n", now_ms() - begin);
  abi::Request write;
  write.mutable_write()->set_path("/root/f");
  write.mutable_write()->set_user("root");
  Call in = open(*vm_, write);
  const std::string chunk(abi::kChunkBytes, 'q');
  for (int i = 0; i < 160; i++)
    ASSERT_TRUE(in.send_data(chunk, i == 159)) << in.finish().result.error().message() << disk_troubles();
  EXPECT_EQ(in.finish().result.file().size_bytes(), 160 * abi::kChunkBytes);
  EXPECT_EQ(ask(*vm_,
                [](abi::Request& r) {
                  r.mutable_read()->set_path("/root/f");
                  r.mutable_read()->set_user("root");
                })
                .data.size(),
            160 * abi::kChunkBytes);
}

TEST_F(Agent, MemoryHogAndForkBombLeaveTheAgentAlive) {
  EXPECT_NE(run(*vm_, "python3 -c 'a=bytearray(2000<<20)' 2>&1; echo $?"), "0\n");
  ASSERT_TRUE(ping(*vm_));
  abi::Request bomb = as_root("f() { f | f & }; f; sleep 5");
  bomb.mutable_exec()->set_timeout_ms(4000);
  (void)open(*vm_, bomb).finish();
  ASSERT_TRUE(ping(*vm_));
  EXPECT_EQ(run(*vm_, "echo alive"), "alive\n");
}

TEST_F(Agent, StrictForkBranchesARunningCommand) {
  abi::Request count = as_root("i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done");
  Call running = open(*vm_, count);
  const uint32_t pid = running.next()->started().pid();
  std::unique_ptr<Vm> child = strict_fork(*vm_, "child-a");
  ASSERT_TRUE(child);

  EXPECT_EQ(run(*child, "hostname"), "child-a\n");
  EXPECT_NE(run(*vm_, "hostname"), "child-a\n");
  EXPECT_NE(run(*child, "head -c 16 /dev/urandom | xxd -p || head -c 16 /dev/urandom | od -An -tx1"),
            run(*vm_, "head -c 16 /dev/urandom | xxd -p || head -c 16 /dev/urandom | od -An -tx1"));
  abi::Request attach;
  attach.mutable_attach()->set_pid(pid);
  Call replay = open(*child, attach);
  std::string seen;
  for (int i = 0; i < 40; i++) {
    const std::optional<abi::Event> event = replay.next();
    ASSERT_TRUE(event);
    if (event->has_output()) seen += event->output().bytes();
  }
  EXPECT_TRUE(seen.starts_with("1\n2\n3\n"));
  int parent_lines = 0;
  for (int i = 0; i < 20; i++)
    if (const std::optional<abi::Event> event = running.next(); event && event->has_output()) parent_lines++;
  EXPECT_GT(parent_lines, 5);  // the parent's stream was not broken
  ask(*vm_, [pid](abi::Request& r) {
    r.mutable_signal()->set_pid(pid);
    r.mutable_signal()->set_signal(SIGKILL);
  });
  EXPECT_TRUE(running.finish().complete);
}

TEST_F(Agent, ForkOfAForkAgainAndAgain) {
  std::unique_ptr<Vm> last;
  std::set<std::string> names;
  for (int i = 0; i < 6; i++) {
    std::unique_ptr<Vm> next = strict_fork(last ? *last : *vm_, "deep-" + std::to_string(i));
    ASSERT_TRUE(next);
    names.insert(run(*next, "hostname"));
    last = std::move(next);
  }
  EXPECT_EQ(names.size(), 6u);
}

TEST_F(Agent, UnidentifiedChildStaysFrozen) {
  abi::Request count = as_root("while :; do date +%s%N > /run/last; sleep 0.02; done");
  count.mutable_exec()->set_detach(true);
  const uint32_t pid = open(*vm_, count).finish().pid;
  ASSERT_TRUE(ask(*vm_, [](abi::Request& r) { r.mutable_freeze(); }).result.has_frozen());
  Result<std::unique_ptr<Vm>> child = vm_->fork_one();
  ASSERT_TRUE(child) << child.error().to_string();
  // The parent's thaw was lost. After 30 s it is thawed by itself, the child is not.
  std::this_thread::sleep_for(40s);
  EXPECT_FALSE(ask(*vm_, [](abi::Request& r) { r.mutable_ping(); }).result.pong().frozen());
  EXPECT_TRUE(ask(**child, [](abi::Request& r) { r.mutable_ping(); }).result.pong().frozen());
  ask(*vm_, [pid](abi::Request& r) {
    r.mutable_signal()->set_pid(pid);
    r.mutable_signal()->set_signal(SIGKILL);
  });
}

TEST_F(Agent, FileSystemFreezeAlwaysEnds) {
  const Call::Outcome frozen = ask(*vm_, [](abi::Request& r) { r.mutable_freeze_fs()->set_hold_ms(1000); });
  ASSERT_TRUE(frozen.result.has_fs_frozen()) << frozen.result.error().message();
  EXPECT_EQ(run(*vm_, "echo x > /root/after; cat /root/after"), "x\n") << disk_troubles();  // waits for the thaw
  const Call::Outcome again = ask(*vm_, [](abi::Request& r) { r.mutable_freeze_fs(); });
  EXPECT_TRUE(again.result.has_fs_frozen()) << again.result.error().message();
  EXPECT_FALSE(ask(*vm_, [](abi::Request& r) { r.mutable_thaw_fs(); }).result.has_error());
  EXPECT_FALSE(ask(*vm_, [](abi::Request& r) { r.mutable_drop_caches(); }).result.has_error());
}

TEST_F(Agent, ShutdownIsClean) {
  std::unique_ptr<Vm> child = strict_fork(*vm_, "short-lived");
  ASSERT_TRUE(child);
  const int64_t begin = now_ms();
  EXPECT_FALSE(ask(*child, [](abi::Request& r) { r.mutable_shutdown(); }).result.has_error());
  const Result<vmm::Ended> ended = child->wait_ended(deadline_after(20s));
  ASSERT_TRUE(ended) << ended.error().to_string();
  EXPECT_EQ(ended->reason(), "poweroff");
  std::printf("shutdown %ld ms\n", now_ms() - begin);

  std::unique_ptr<Vm> other = strict_fork(*vm_, "button");
  ASSERT_TRUE(other);
  ASSERT_TRUE(other->control().power_button(deadline_after(5s)));
  const Result<vmm::Ended> by_button = other->wait_ended(deadline_after(20s));
  ASSERT_TRUE(by_button) << by_button.error().to_string();
  EXPECT_EQ(by_button->reason(), "poweroff");
}

}  // namespace
}  // namespace ramet::vmtest
