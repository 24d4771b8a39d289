// Parts of the agent that need no process around them.
#include <gtest/gtest.h>

#include "files/operations.h"
#include "generation.h"
#include "identity.h"
#include "init/machine.h"
#include "reactor.h"
#include "spawn.h"
#include "users.h"

namespace ramet::guest {
namespace {

using namespace std::chrono_literals;

TEST(KernelOptions, DefaultsAndOverrides) {
  EXPECT_EQ(parse_kernel_options("console=ttyS0 quiet\n").root_device, "/dev/vda");
  const KernelOptions options = parse_kernel_options("quiet ramet.root=/dev/vdb ramet.rootfstype=xfs xramet.root=/dev/no\n");
  EXPECT_EQ(options.root_device, "/dev/vdb");
  EXPECT_EQ(options.root_type, "xfs");
}

TEST(KernelOptions, EmptyValueIsIgnored) { EXPECT_EQ(parse_kernel_options("ramet.root= quiet").root_device, "/dev/vda"); }

TEST(Users, EmptyIsRoot) {
  EXPECT_EQ(find_user("")->uid, 0u);
  EXPECT_EQ(find_user("root")->home, "/root");
}

TEST(Users, NumbersNeedNoEntry) {
  const Result<User> user = find_user("54321");
  ASSERT_TRUE(user);
  EXPECT_EQ(user->uid, 54321u);
  EXPECT_EQ(user->home, "/");
  EXPECT_EQ(find_user("no-such-user").error().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(find_user("-1").error().kind(), ErrorKind::kNotFound);
}

abi::Identify good_identity() {
  abi::Identify request;
  request.set_entropy(std::string(64, 'e'));
  request.set_hostname("sandbox-1");
  request.set_machine_id("0123456789abcdef0123456789abcdef");
  request.set_wall_clock_ns(1);
  return request;
}

TEST(Identity, AcceptsAWholeRequest) { EXPECT_TRUE(validate(good_identity())); }

TEST(Identity, RefusesTooLittleEntropy) {
  abi::Identify request = good_identity();
  request.set_entropy(std::string(31, 'e'));
  EXPECT_FALSE(validate(request));
}

TEST(Identity, RefusesNamesThatCouldBecomeSomethingElse) {
  abi::Identify request = good_identity();
  request.set_hostname("a\nb");
  EXPECT_FALSE(validate(request));
  request = good_identity();
  request.set_machine_id("0123456789ABCDEF0123456789abcdef");
  EXPECT_FALSE(validate(request));
}

TEST(Exec, RefusesWhatCannotBeRun) {
  abi::Exec exec;
  EXPECT_FALSE(validate(exec));
  exec.set_shell("true");
  EXPECT_TRUE(validate(exec));
  exec.add_argv("true");
  EXPECT_FALSE(validate(exec));
  exec.clear_shell();
  exec.add_argv(std::string("a\0b", 3));
  EXPECT_FALSE(validate(exec));
  exec.clear_argv();
  exec.set_shell("true");
  (*exec.mutable_env())["A=B"] = "c";
  EXPECT_FALSE(validate(exec));
}

TEST(Generation, OnlyTheKernelCanReportIt) {
  EXPECT_TRUE(announces_generation("5,1234,40872306,-;random: crng reseeded due to virtual machine fork\n"));
  EXPECT_FALSE(announces_generation("13,1234,40872306,-;random: crng reseeded due to virtual machine fork\n"));  // a user
  EXPECT_FALSE(announces_generation("5,1234,40872306,-;usb: random: crng reseeded due to virtual machine fork\n"));
  EXPECT_FALSE(announces_generation("random: crng reseeded due to virtual machine fork"));
  EXPECT_FALSE(announces_generation(""));
}

TEST(Paths, Parents) {
  EXPECT_EQ(parent_of("/a/b"), "/a");
  EXPECT_EQ(parent_of("/a/b//"), "/a");
  EXPECT_EQ(parent_of("/a"), "/");
  EXPECT_EQ(parent_of("/"), "/");
}

TEST(Reactor, TimersFireInOrderAndCanBeCancelled) {
  Reactor reactor;
  std::string order;
  Timer b = reactor.after(20ms, [&] { order += "b"; });
  Timer a = reactor.after(10ms, [&] { order += "a"; });
  Timer never = reactor.after(15ms, [&] { order += "x"; });
  Timer end = reactor.after(30ms, [&] { reactor.stop(); });
  never.cancel();
  reactor.run();
  EXPECT_EQ(order, "ab");
}

TEST(Reactor, HandlerMayRemoveItself) {
  Reactor reactor;
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const UniqueFd read_end(fds[0]);
  UniqueFd write_end(fds[1]);
  Watch watch;
  int calls = 0;
  watch = reactor.watch(read_end.get(), EPOLLIN, [&](uint32_t) {
    calls++;
    watch.reset();
  });
  write_end.reset();
  const Timer end = reactor.after(20ms, [&] { reactor.stop(); });
  reactor.run();
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace ramet::guest
