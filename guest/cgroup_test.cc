// Freezing, killing and cleaning up by cgroup, through the real agent program on a cgroup v2 tree of this machine.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "testing/agent_client.h"

namespace ramet::guest {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class Cgroup : public testing::Test {
 protected:
  void SetUp() override {
    const std::string mount = writable_cgroup2();
    if (mount.empty()) GTEST_SKIP() << "no writable cgroup v2 on this machine";
    dir_ = mount + "/ramet.test-" + std::to_string(::getpid());
    if (::mkdir(dir_.c_str(), 0755) < 0) GTEST_SKIP() << "cannot make a cgroup here";
    if (!fs::exists(dir_ + "/cgroup.kill")) {
      ::rmdir(dir_.c_str());
      GTEST_SKIP() << "this kernel's cgroup v2 has no cgroup.kill";
    }
    agent_.emplace(dir_);
    ASSERT_TRUE(agent_->ready());
  }
  void TearDown() override {
    agent_.reset();
    for (int i = 0; i < 100 && !dir_.empty() && leaves() > 0; i++) {
      for (const auto& entry : fs::directory_iterator(dir_))
        if (entry.is_directory()) ::rmdir(entry.path().c_str());
      std::this_thread::sleep_for(10ms);
    }
    if (!dir_.empty()) ::rmdir(dir_.c_str());
  }
  size_t leaves() const {
    size_t n = 0;
    if (fs::exists(dir_))
      for (const auto& entry : fs::directory_iterator(dir_)) n += entry.is_directory();
    return n;
  }
  bool leaves_become(size_t wanted) const {
    for (int i = 0; i < 200 && leaves() != wanted; i++) std::this_thread::sleep_for(10ms);
    return leaves() == wanted;
  }
  Call::Outcome simple(const std::function<void(abi::Request&)>& fill) {
    abi::Request request;
    fill(request);
    return call(*agent_, request);
  }

  std::string dir_;
  std::optional<TestAgent> agent_;
};

TEST_F(Cgroup, CommandRunsInItsLeafWhichGoesWithIt) {
  EXPECT_EQ(call(*agent_, shell("grep -c ramet.test.*/c /proc/self/cgroup")).out, "1\n");
  EXPECT_TRUE(leaves_become(0));
}

TEST_F(Cgroup, LeafOfADaemonGoesWithTheDaemon) {
  const Call::Outcome o = call(*agent_, shell("setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!"));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(leaves(), 1u);
  ::kill(std::stoi(o.out), SIGKILL);
  EXPECT_TRUE(leaves_become(0));
}

TEST_F(Cgroup, TimeoutKillsWhatLeftTheProcessGroup) {
  abi::Request request = shell("setsid sleep 601 & sleep 600");
  request.mutable_exec()->set_timeout_ms(200);
  const Call::Outcome o = call(*agent_, request);
  EXPECT_TRUE(o.result.exit().timed_out());
  EXPECT_TRUE(leaves_become(0));
}

TEST_F(Cgroup, FrozenTasksStandStillUntilThawed) {
  const std::string counter = agent_->dir() + "/counter";
  abi::Request request = shell("while :; do echo x >> " + counter + "; done");
  request.mutable_exec()->set_detach(true);
  const uint32_t pid = call(*agent_, request).pid;
  std::this_thread::sleep_for(100ms);

  const Call::Outcome frozen = simple([](abi::Request& r) { r.mutable_freeze(); });
  ASSERT_TRUE(frozen.result.has_frozen()) << frozen.result.error().message();
  EXPECT_TRUE(simple([](abi::Request& r) { r.mutable_ping(); }).result.pong().frozen());
  const uintmax_t before = fs::file_size(counter);
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(fs::file_size(counter), before);

  EXPECT_FALSE(simple([](abi::Request& r) { r.mutable_thaw(); }).result.has_error());
  std::this_thread::sleep_for(200ms);
  EXPECT_GT(fs::file_size(counter), before);
  simple([pid](abi::Request& r) {
    r.mutable_signal()->set_pid(pid);
    r.mutable_signal()->set_signal(SIGKILL);
  });
}

TEST_F(Cgroup, CommandStartedWhileFrozenWaitsAndTheAgentDoesNot) {
  ASSERT_TRUE(simple([](abi::Request& r) { r.mutable_freeze(); }).result.has_frozen());
  Call exec(*agent_, shell("echo late"));
  EXPECT_FALSE(exec.next(Milliseconds(200)));
  EXPECT_TRUE(simple([](abi::Request& r) { r.mutable_ping(); }).result.has_pong());
  simple([](abi::Request& r) { r.mutable_thaw(); });
  EXPECT_EQ(exec.finish().out, "late\n");
}

TEST_F(Cgroup, FreezingNothingAndTwiceIsFine) {
  EXPECT_TRUE(simple([](abi::Request& r) { r.mutable_freeze(); }).result.has_frozen());
  EXPECT_TRUE(simple([](abi::Request& r) { r.mutable_freeze(); }).result.has_frozen());
  EXPECT_FALSE(simple([](abi::Request& r) { r.mutable_thaw(); }).result.has_error());
  EXPECT_FALSE(simple([](abi::Request& r) { r.mutable_thaw(); }).result.has_error());
}

TEST_F(Cgroup, ManyRoundsLeaveNoLeaf) {
  for (int i = 0; i < 500; i++) ASSERT_TRUE(call(*agent_, shell("true")).complete);
  EXPECT_TRUE(leaves_become(0));
  for (int i = 0; i < 50; i++) {
    ASSERT_TRUE(simple([](abi::Request& r) { r.mutable_freeze(); }).result.has_frozen());
    ASSERT_FALSE(simple([](abi::Request& r) { r.mutable_thaw(); }).result.has_error());
  }
}

}  // namespace
}  // namespace ramet::guest
