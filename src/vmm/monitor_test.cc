// What a broken daemon can send on the bootstrap socket: an error each time, reported on the socket too.
#include "vmm/monitor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/socket.h"
#include "vmm/control/bootstrap.h"

namespace ramet::vmm {
namespace {

class MonitorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    control::BootstrapSocket::Pair pair = *control::BootstrapSocket::make_pair();
    ours_ = std::make_unique<control::BootstrapSocket>(std::move(pair.ours));
    theirs_ = std::move(pair.theirs);
    bootstrap_.set_sandbox_id("test");
  }
  Deadline soon() { return deadline_after(std::chrono::seconds(5)); }
  uint32_t add(UniqueFd fd) {
    owned_.push_back(std::move(fd));
    return fds_.add(owned_.back().get());
  }
  uint32_t add_listener() {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const sockaddr unnamed{AF_UNIX, {}};
    EXPECT_EQ(::bind(socket.get(), &unnamed, sizeof(sa_family_t)), 0);
    EXPECT_EQ(::listen(socket.get(), 1), 0);
    return add(std::move(socket));
  }
  // The error of start(), which must be what the daemon is told.
  ErrorKind start() {
    EXPECT_TRUE(ours_->send(bootstrap_, fds_.fds(), soon()));
    Monitor monitor(*EventLoop::create());
    const Status started = monitor.start(std::move(theirs_));
    if (started) return ErrorKind::kInternal;
    const Result<Ready> told = ours_->wait_ready(soon());
    EXPECT_FALSE(told);
    EXPECT_EQ(told.error().message(), started.error().message());
    return started.error().kind();
  }
  Bootstrap bootstrap_;
  control::FdsToSend fds_;
  std::vector<UniqueFd> owned_;
  std::unique_ptr<control::BootstrapSocket> ours_;
  UniqueFd theirs_;
};

class MonitorOnKvmTest : public MonitorTest {
 protected:
  void SetUp() override {
    MonitorTest::SetUp();
    Result<UniqueFd> kvm = open_file("/dev/kvm", O_RDWR);
    if (!kvm) GTEST_SKIP() << "/dev/kvm cannot be opened on this machine";  // here, where it ends the test
    bootstrap_.set_kvm_fd(add(*std::move(kvm)));
  }
};

TEST_F(MonitorTest, HangUpInsteadOfBootstrap) {
  ours_.reset();
  Monitor monitor(*EventLoop::create());
  EXPECT_EQ(monitor.start(std::move(theirs_)).error().kind(), ErrorKind::kUnavailable);
}

TEST_F(MonitorTest, GarbageInsteadOfBootstrap) {
  ASSERT_TRUE(send_message(ours_->fd(), as_bytes("\xff\xff\xff"), {}, soon()));
  Monitor monitor(*EventLoop::create());
  EXPECT_EQ(monitor.start(std::move(theirs_)).error().kind(), ErrorKind::kCorrupt);
}

TEST_F(MonitorTest, NoDescriptors) {
  bootstrap_.set_kvm_fd(1);
  EXPECT_EQ(start(), ErrorKind::kInvalid);
}

TEST_F(MonitorTest, SameDescriptorTwice) {
  bootstrap_.set_kvm_fd(add(*open_file("/dev/null", O_RDWR)));
  bootstrap_.set_listen_fd(bootstrap_.kvm_fd());
  EXPECT_EQ(start(), ErrorKind::kInvalid);
}

TEST_F(MonitorTest, KvmThatIsNone) {
  bootstrap_.set_kvm_fd(add(*open_file("/dev/null", O_RDWR)));
  bootstrap_.set_listen_fd(add_listener());
  EXPECT_EQ(start(), ErrorKind::kUnsupported);
}

TEST_F(MonitorOnKvmTest, NeitherKernelNorImage) {
  bootstrap_.set_listen_fd(add_listener());
  EXPECT_EQ(start(), ErrorKind::kInvalid);
}

TEST_F(MonitorOnKvmTest, TooManyDisks) {
  bootstrap_.set_listen_fd(add_listener());
  for (int i = 0; i < 2; i++) bootstrap_.add_disks()->set_size_bytes(4096);
  EXPECT_EQ(start(), ErrorKind::kUnsupported);
}

TEST_F(MonitorOnKvmTest, MemorySizeThatIsNoMultipleOf2MiB) {
  bootstrap_.set_listen_fd(add_listener());
  bootstrap_.mutable_boot()->set_kernel_fd(add(*open_file("/dev/null", O_RDONLY)));
  bootstrap_.mutable_boot()->set_memory_bytes(12345);
  EXPECT_EQ(start(), ErrorKind::kInvalid);
}

TEST_F(MonitorOnKvmTest, TooManyProcessors) {
  bootstrap_.set_listen_fd(add_listener());
  bootstrap_.mutable_boot()->set_kernel_fd(add(*open_file("/dev/null", O_RDONLY)));
  bootstrap_.mutable_boot()->set_memory_bytes(64 << 20);
  bootstrap_.mutable_boot()->set_vcpus(17);
  EXPECT_EQ(start(), ErrorKind::kInvalid);
}

TEST_F(MonitorOnKvmTest, ImageOfGarbage) {
  bootstrap_.set_listen_fd(add_listener());
  UniqueFd state = *make_memfd("state", 0);
  ASSERT_TRUE(write_all(state.get(), as_bytes(std::string(4096, 'x'))));
  bootstrap_.mutable_image()->set_vmstate_fd(add(std::move(state)));
  bootstrap_.mutable_image()->set_memory_even_fd(add(*make_memfd("even", 2 << 20)));
  bootstrap_.mutable_image()->set_memory_odd_fd(add(*make_memfd("odd", 2 << 20)));
  EXPECT_EQ(start(), ErrorKind::kCorrupt);
}

TEST_F(MonitorTest, SocketThatDoesNotListen) {
  bootstrap_.set_kvm_fd(add(*open_file("/dev/null", O_RDWR)));
  bootstrap_.set_listen_fd(add(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0))));
  EXPECT_EQ(start(), ErrorKind::kInvalid);
}

}  // namespace
}  // namespace ramet::vmm
