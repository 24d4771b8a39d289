// Streams to a guest: they carry bytes, outlive a pause and a fork in the parent, are gone in the child, and can be opened anew
// there.
#include <sys/socket.h>

#include "vm/harness/vm_test.h"

namespace ramet::vmtest {
namespace {

using guests::kAnswer;
using guests::kCount;
using guests::kGo;
using guests::kPing;
using guests::kWrite;

constexpr uint32_t kPort = 1024;

class VsockTest : public VmTest {
 protected:
  static Milliseconds patience() { return Milliseconds(10'000); }
  // The guest begins to serve and answers when so many streams are over.
  static void serve(Vm& vm, uint32_t streams) {
    const uint32_t word = guests::word(kGo, streams);
    must(vm.push({&word, 1}));
  }
  static void wait_served(Vm& vm) { must(vm.wait_for_kind(kAnswer, within(kSoon))); }
  static UniqueFd connect(Vm& vm) {
    UniqueFd stream = must(vm.control().connect_guest(kPort, patience()));
    const timeval limit{10, 0};
    ::setsockopt(stream.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return stream;
  }
  static std::string echo(const UniqueFd& stream, const std::string& text) {
    EXPECT_EQ(::send(stream.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    std::string back(text.size(), 0);
    size_t got = 0;
    while (got < back.size()) {
      const ssize_t n = ::recv(stream.get(), back.data() + got, back.size() - got, 0);
      if (n <= 0) break;
      got += static_cast<size_t>(n);
    }
    back.resize(got);
    return back;
  }
  static std::string use_once(Vm& vm, const std::string& text) {
    serve(vm, 1);
    std::string back = echo(connect(vm), text);
    wait_served(vm);
    return back;
  }
};

TEST_F(VsockTest, EchoesAndEnds) {
  std::unique_ptr<Vm> vm = boot("vsock");
  EXPECT_EQ(use_once(*vm, "hello"), "hello");
  EXPECT_EQ(use_once(*vm, std::string(1000, 'x')), std::string(1000, 'x'));
  EXPECT_EQ(must(vm->control().stats(vm->patience())).vsock_connections(), 0u);
}

TEST_F(VsockTest, AGuestThatDoesNotAnswerTimesOut) {
  std::unique_ptr<Vm> vm = boot("vsock");
  const Result<UniqueFd> stream = vm->control().connect_guest(kPort, Milliseconds(200));
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().kind(), ErrorKind::kTimeout);
  serve(*vm, 2);  // the late request and its reset count as one
  EXPECT_EQ(echo(connect(*vm), "later"), "later");
  wait_served(*vm);
}

TEST_F(VsockTest, AGuestWithoutADriverIsUnavailable) {
  std::unique_ptr<Vm> vm = boot("counter");
  const Result<UniqueFd> stream = vm->control().connect_guest(kPort, patience());
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().kind(), ErrorKind::kUnavailable);
}

TEST_F(VsockTest, AStreamOutlivesAPause) {
  std::unique_ptr<Vm> vm = boot("vsock");
  serve(*vm, 1);
  UniqueFd stream = connect(*vm);
  EXPECT_EQ(echo(stream, "before"), "before");
  must(vm->control().pause(vm->patience()));
  ASSERT_EQ(::send(stream.get(), "in", 2, MSG_NOSIGNAL), 2);
  must(vm->control().resume(vm->patience()));
  EXPECT_EQ(echo(stream, " and after").substr(0, 4), "in a");
  stream.reset();
  wait_served(*vm);
  EXPECT_EQ(must(vm->command(kCount, 0)), 0u);
}

TEST_F(VsockTest, AForkEndsTheStreamInTheChildOnly) {
  std::unique_ptr<Vm> parent = boot("vsock");
  serve(*parent, 2);
  UniqueFd stream = connect(*parent);
  EXPECT_EQ(echo(stream, "before"), "before");
  std::unique_ptr<Vm> child = must(parent->fork_one());
  EXPECT_EQ(echo(stream, "after"), "after");
  // The child serves on: one of its two streams is over by the reset, the other is a new one.
  EXPECT_EQ(echo(connect(*child), "new"), "new");
  wait_served(*child);
  EXPECT_EQ(must(child->command(kCount, 0)), 1u);
  EXPECT_EQ(echo(stream, "still"), "still");
  stream.reset();
  EXPECT_EQ(echo(connect(*parent), "second"), "second");
  wait_served(*parent);
  EXPECT_EQ(must(parent->command(kCount, 0)), 0u);
}

TEST_F(VsockTest, AFrozenChildBetweenDoesNotHoldTheParentsStream) {
  std::unique_ptr<Vm> parent = boot("vsock");
  serve(*parent, 1);
  UniqueFd stream = connect(*parent);
  EXPECT_EQ(echo(stream, "before"), "before");
  std::vector<std::unique_ptr<Vm>> children = must(parent->fork_many(3));
  EXPECT_EQ(echo(stream, "after"), "after");
  must(parent->control().stop(parent->patience()));
  char byte;
  EXPECT_EQ(::recv(stream.get(), &byte, 1, 0), 0) << "a descriptor of the parent's stream lives on in a child";
}

TEST_F(VsockTest, WorksAfterAForkOfAForkAHundredTimes) {
  constexpr int kGenerations = 100;
  std::unique_ptr<Vm> youngest = boot("vsock");
  for (int i = 0; i < kGenerations; i++) {
    ASSERT_EQ(use_once(*youngest, "hi"), "hi") << "generation " << i;
    youngest = must(youngest->fork_one());
  }
  EXPECT_EQ(use_once(*youngest, "hi"), "hi");
  EXPECT_EQ(must(youngest->command(kCount, 0)), static_cast<uint32_t>(kGenerations));
}

TEST_F(VsockTest, ChildrenOfAZygoteHaveStreams) {
  std::unique_ptr<Vm> zygote = zygote_of("vsock");
  for (const std::unique_ptr<Vm>& child : must(zygote->fork_many(2))) EXPECT_EQ(use_once(*child, "zygote"), "zygote");
}

TEST_F(VsockTest, AFloodOfPacketsLeavesTheMonitorAndItsStreamsUsable) {
  std::unique_ptr<Vm> vm = boot("vsock");
  const uint32_t flood = guests::word(kWrite, 2000);
  must(vm->push({&flood, 1}));
  must(vm->control().ping(vm->patience()));
  EXPECT_EQ(must(vm->wait_for_kind(kAnswer, within(std::chrono::seconds(60)))), 2000u);
  EXPECT_EQ(use_once(*vm, "usable"), "usable");
}

}  // namespace
}  // namespace ramet::vmtest
