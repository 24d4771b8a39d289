#include "vmm/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ramet::vmm {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(CloseAllBut, ClosesEverythingElse) {
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    const int a = ::open("/dev/null", O_RDONLY), b = ::open("/dev/null", O_RDONLY), c = ::dup2(a, 900);
    const bool done = close_all_but({2, b, b, -1}).has_value();
    ::_exit(done && is_open(b) && is_open(2) && !is_open(a) && !is_open(c) && !is_open(0) ? 0 : 1);
  }
  int status = 1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Branch, ChildIsKnownByPidfdAndLeavesNoZombie) {
  ignore_child_exits();
  const pid_t here = ::getpid();
  int first = 0;
  Result<Branch> b = branch([&] { first = ::getpid() == here ? first + 1 : 100; });
  if (b && b->is_child()) ::_exit(first);
  ASSERT_TRUE(b);
  EXPECT_EQ(first, 1);
  pollfd p{b->pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 5000), 1);
  EXPECT_EQ(::waitpid(b->pid, nullptr, 0), -1);
}

}  // namespace
}  // namespace ramet::vmm
