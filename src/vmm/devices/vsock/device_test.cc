#include "vmm/devices/vsock/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <thread>

#include "vmm/devices/vsock/guest_fake.h"

namespace ramet::vmm {
namespace {

using namespace std::chrono_literals;
using vsock::kShutdownBoth;
using vsock::kShutdownReceive;
using vsock::kShutdownSend;
using vsock::Op;
using vsock::Packet;

constexpr uint32_t kPort = 1024;

class VsockTest : public ::testing::Test {
 protected:
  VsockTest() : loop_(std::move(*EventLoop::create())), guest_(device_) { device_.use_loop(*loop_); }

  void run() {
    for (int i = 0; i < 4; i++) loop_->run_once(deadline_after(0ms));
  }
  // Asks for a stream; the answer lands in answer_.
  void ask(std::chrono::milliseconds patience = 5s) {
    device_.connect(kPort, deadline_after(patience), [this](Result<UniqueFd> r) { answer_.emplace(std::move(r)); });
    run();
  }
  // The next packet that is not a credit update.
  std::optional<Delivery> next() {
    for (;;) {
      std::optional<Delivery> d = guest_.receive();
      if (!d || d->packet.op != Op::kCreditUpdate) return d;
    }
  }
  // A stream that both sides agree on.
  GuestStream open() {
    answer_.reset();
    ask();
    const std::optional<Delivery> request = next();
    if (!request || request->packet.op != Op::kRequest) {
      ADD_FAILURE() << "no request";
      return {};
    }
    GuestStream s{request->packet.src_port, request->packet.dst_port};
    guest_.send(s.packet(Op::kResponse));
    run();
    if (!answer_ || !*answer_) {
      ADD_FAILURE() << "not answered";
      return s;
    }
    host_ = std::move(**answer_);
    return s;
  }
  std::string host_read(size_t most = 1 << 20) {
    std::string out(most, 0);
    const ssize_t n = ::recv(host_.get(), out.data(), most, MSG_DONTWAIT);
    if (n < 0) return "(nothing)";
    if (n == 0) return "(end)";
    out.resize(static_cast<size_t>(n));
    return out;
  }
  void host_write(std::string_view bytes) {
    ASSERT_EQ(::send(host_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    run();
  }
  ErrorKind answered_error() { return answer_ && !*answer_ ? answer_->error().kind() : ErrorKind::kInternal; }
  // What a forked child does with its copy, in this process.
  void become_child() {
    ASSERT_TRUE(guest_.driver.transport().quiesce(deadline_after(1s)));
    guest_.driver.transport().after_fork();
    loop_ = std::move(*EventLoop::create());
    device_.use_loop(*loop_);
    guest_.driver.transport().resume();
    run();
  }

  std::unique_ptr<EventLoop> loop_;
  VsockDevice device_;
  VsockGuestFake guest_;
  std::optional<Result<UniqueFd>> answer_;
  UniqueFd host_;
};

TEST_F(VsockTest, ConfigurationShowsTheGuestCid) {
  EXPECT_EQ(guest_.driver.read(VIRTIO_MMIO_DEVICE_ID), 19u);
  EXPECT_EQ(guest_.driver.read(VIRTIO_MMIO_CONFIG), vsock::kGuestCid);
  EXPECT_EQ(guest_.driver.read(VIRTIO_MMIO_CONFIG + 4), 0u);
}

TEST_F(VsockTest, WithoutADriverAConnectFailsAtOnce) {
  ask();
  EXPECT_EQ(answered_error(), ErrorKind::kUnavailable);
}

TEST_F(VsockTest, ConnectSendsARequestAndHandsOutTheStreamOnResponse) {
  guest_.start();
  ask();
  const std::optional<Delivery> request = guest_.receive();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->packet.op, Op::kRequest);
  EXPECT_EQ(request->packet.src_cid, vsock::kHostCid);
  EXPECT_EQ(request->packet.dst_cid, vsock::kGuestCid);
  EXPECT_EQ(request->packet.dst_port, kPort);
  EXPECT_EQ(request->packet.buf_alloc, 256u * 1024);
  EXPECT_FALSE(answer_);
  guest_.send(GuestStream{request->packet.src_port, kPort}.packet(Op::kResponse));
  run();
  ASSERT_TRUE(answer_);
  EXPECT_TRUE(answer_->has_value());
}

TEST_F(VsockTest, AResetInsteadOfAResponseIsARefusal) {
  guest_.start();
  ask();
  const std::optional<Delivery> request = guest_.receive();
  ASSERT_TRUE(request);
  guest_.send(GuestStream{request->packet.src_port, kPort}.packet(Op::kRst));
  run();
  EXPECT_EQ(answered_error(), ErrorKind::kUnavailable);
  EXPECT_EQ(device_.metrics().connections, 0u);
}

TEST_F(VsockTest, ASilentGuestTimesOutAndIsToldSo) {
  guest_.start();
  ask(1ms);
  loop_->run_once(deadline_after(50ms));
  run();
  EXPECT_EQ(answered_error(), ErrorKind::kTimeout);
  EXPECT_EQ(guest_.receive()->packet.op, Op::kRequest);
  EXPECT_EQ(guest_.receive()->packet.op, Op::kRst);
}

TEST_F(VsockTest, HostPortsAreNotUsedAgain) {
  guest_.start();
  const uint32_t first = open().host_port;
  guest_.send(GuestStream{first, kPort}.packet(Op::kRst));
  EXPECT_EQ(open().host_port, first + 1);
}

TEST_F(VsockTest, BytesGoBothWays) {
  guest_.start();
  const GuestStream s = open();
  host_write("to the guest");
  const std::optional<Delivery> d = next();
  ASSERT_TRUE(d);
  EXPECT_EQ(d->packet.op, Op::kRw);
  EXPECT_EQ(d->payload, "to the guest");
  guest_.send(s.packet(Op::kRw, 11), "to the host");
  EXPECT_EQ(host_read(), "to the host");
}

TEST_F(VsockTest, ALongWriteArrivesInPiecesOfTheGuestsBuffers) {
  guest_.start(2);
  open();
  const std::string sent(20'000, 'x');
  host_write(sent);
  std::string got;
  while (const std::optional<Delivery> d = next()) {
    EXPECT_LE(d->payload.size(), VsockGuestFake::kBufferBytes - vsock::kHeaderBytes);
    got += d->payload;
    run();
  }
  EXPECT_EQ(got, sent);
}

TEST_F(VsockTest, TheHostsBytesWaitForCredit) {
  guest_.start();
  GuestStream s;
  answer_.reset();
  ask();
  s = {next()->packet.src_port, kPort, 10};  // a guest that takes 10 bytes
  guest_.send(s.packet(Op::kResponse));
  run();
  host_ = std::move(**answer_);
  host_write("0123456789abcdef");
  EXPECT_EQ(next()->payload, "0123456789");
  EXPECT_FALSE(next());
  s.received = 10;
  guest_.send(s.packet(Op::kCreditUpdate));
  EXPECT_EQ(next()->payload, "abcdef");
}

TEST_F(VsockTest, TheHostsBytesWaitForReceiveBuffers) {
  guest_.start(1);
  open();
  host_write("first");
  const std::optional<Delivery> first = guest_.receive(/*keep=*/true);
  ASSERT_TRUE(first);
  host_write("second");
  EXPECT_FALSE(guest_.receive());
  guest_.post(VsockDevice::kRxQueue, guest_.driver.allocate(4096), 4096);
  guest_.driver.kick(VsockDevice::kRxQueue);
  EXPECT_EQ(guest_.receive()->payload, "second");
}

TEST_F(VsockTest, ASlowHostIsBufferedUpToThePromiseAndAnOverrunIsReset) {
  guest_.start();
  const GuestStream s = open();
  const std::string chunk(32 * 1024, 'g');
  // The socket itself takes some; after that the device holds at most what it promised.
  int sent = 0;
  std::optional<Delivery> d;
  while (sent < 100 && !(d = next())) {
    guest_.send(s.packet(Op::kRw, chunk.size()), chunk);
    run();
    EXPECT_LE(device_.metrics().held_bytes, 256u * 1024);
    sent++;
  }
  ASSERT_TRUE(d);
  EXPECT_EQ(d->packet.op, Op::kRst);
  EXPECT_GT(sent, 8);
  EXPECT_LT(sent, 30);
}

TEST_F(VsockTest, HeldBytesReachTheHostInOrderAndCreditIsGivenBack) {
  guest_.start();
  GuestStream s = open();
  std::string sent, got;
  uint32_t fwd_cnt = 0;
  for (int i = 0; i < 64; i++) {
    const std::string chunk(16 * 1024, static_cast<char>('a' + i % 26));
    // A guest that keeps to its credit.
    for (int tries = 0; sent.size() + chunk.size() - fwd_cnt > 256 * 1024 && tries < 100; tries++) {
      got += host_read(50'000);
      run();
      while (const std::optional<Delivery> d = guest_.receive()) fwd_cnt = d->packet.fwd_cnt;
    }
    guest_.send(s.packet(Op::kRw, chunk.size()), chunk);
    sent += chunk;
  }
  for (int tries = 0; got.size() < sent.size() && tries < 1000; tries++) {
    run();
    const std::string part = host_read(50'000);
    if (part != "(nothing)") got += part;
  }
  EXPECT_EQ(got.size(), sent.size());
  EXPECT_TRUE(got == sent);
  EXPECT_EQ(device_.metrics().connections, 1u);
}

TEST_F(VsockTest, ACreditRequestIsAnswered) {
  guest_.start();
  const GuestStream s = open();
  guest_.send(s.packet(Op::kRw, 5), "12345");
  guest_.send(s.packet(Op::kCreditRequest));
  const std::optional<Delivery> d = guest_.receive();
  ASSERT_TRUE(d);
  EXPECT_EQ(d->packet.op, Op::kCreditUpdate);
  EXPECT_EQ(d->packet.fwd_cnt, 5u);
}

TEST_F(VsockTest, TheHostsHalfCloseBecomesShutdownBehindItsBytes) {
  guest_.start();
  const GuestStream s = open();
  ASSERT_EQ(::send(host_.get(), "last", 4, 0), 4);
  ASSERT_EQ(::shutdown(host_.get(), SHUT_WR), 0);
  run();
  EXPECT_EQ(next()->payload, "last");
  const std::optional<Delivery> d = next();
  ASSERT_TRUE(d);
  EXPECT_EQ(d->packet.op, Op::kShutdown);
  EXPECT_EQ(d->packet.flags, kShutdownSend);
  guest_.send(s.packet(Op::kRw, 6), "answer");  // the other direction is still open
  EXPECT_EQ(host_read(), "answer");
}

TEST_F(VsockTest, TheGuestsHalfCloseIsTheHostsEndOfFile) {
  guest_.start();
  const GuestStream s = open();
  guest_.send(s.packet(Op::kRw, 4), "last");
  guest_.send(s.packet(Op::kShutdown, 0, kShutdownSend));
  EXPECT_EQ(host_read(), "last");
  EXPECT_EQ(host_read(), "(end)");
  host_write("more");
  EXPECT_EQ(next()->payload, "more");
}

TEST_F(VsockTest, TheGuestsCloseIsAnsweredByResetAndEndsTheHostsStream) {
  guest_.start();
  const GuestStream s = open();
  guest_.send(s.packet(Op::kRw, 4), "last");
  guest_.send(s.packet(Op::kShutdown, 0, kShutdownBoth));
  EXPECT_EQ(next()->packet.op, Op::kRst);
  run();
  EXPECT_EQ(host_read(), "last");
  EXPECT_EQ(host_read(), "(end)");
  EXPECT_EQ(device_.metrics().connections, 0u);
}

TEST_F(VsockTest, WhatAClosedGuestSentReachesASlowHostEvenAfterTheGuestLostPatience) {
  guest_.start();
  const GuestStream s = open();
  const std::string chunk(64 * 1024, 'g');
  int sent = 0;
  while (device_.metrics().held_bytes == 0 && sent < 20) {
    guest_.send(s.packet(Op::kRw, chunk.size()), chunk);
    sent++;
  }
  guest_.send(s.packet(Op::kShutdown, 0, kShutdownBoth));
  guest_.send(s.packet(Op::kRst));
  size_t got = 0;
  for (int tries = 0; tries < 1000; tries++) {
    const std::string part = host_read(10'000);
    if (part == "(end)") break;
    if (part != "(nothing)") got += part.size();
    run();
  }
  EXPECT_EQ(got, sent * chunk.size());
  EXPECT_EQ(device_.metrics().connections, 0u);
}

TEST_F(VsockTest, TheHostsCloseBecomesShutdownOfBothDirections) {
  guest_.start();
  const GuestStream s = open();
  ASSERT_EQ(::send(host_.get(), "last", 4, 0), 4);
  host_.reset();
  run();
  std::string payload;
  uint32_t flags = 0;
  while (const std::optional<Delivery> d = next()) {
    payload += d->payload;
    if (d->packet.op == Op::kShutdown) flags |= d->packet.flags;
  }
  EXPECT_EQ(payload, "last");
  EXPECT_EQ(flags, kShutdownBoth);
  guest_.send(s.packet(Op::kRw, 4), "void");  // on its way already: thrown away
  EXPECT_FALSE(next());
  guest_.send(s.packet(Op::kRst));
  run();
  EXPECT_EQ(device_.metrics().connections, 0u);
}

TEST_F(VsockTest, AStreamTheGuestAsksForIsRefused) {
  guest_.start();
  const GuestStream s{5000, 6000};
  guest_.send(s.packet(Op::kRequest));
  const std::optional<Delivery> d = guest_.receive();
  ASSERT_TRUE(d);
  EXPECT_EQ(d->packet.op, Op::kRst);
  EXPECT_EQ(d->packet.src_port, 5000u);
  EXPECT_EQ(d->packet.dst_port, 6000u);
}

TEST_F(VsockTest, AResetForNoStreamIsNotAnswered) {
  guest_.start();
  guest_.send(GuestStream{5000, 6000}.packet(Op::kRst));
  EXPECT_FALSE(guest_.receive());
}

TEST_F(VsockTest, AForeignGuestPortOrCidDoesNotReachAStream) {
  guest_.start();
  const GuestStream s = open();
  guest_.send(GuestStream{s.host_port, s.guest_port + 1}.packet(Op::kRw, 4), "evil");
  Packet foreign = s.packet(Op::kRw, 4);
  foreign.src_cid = 77;
  guest_.send(foreign, "evil");
  EXPECT_EQ(host_read(), "(nothing)");
  EXPECT_EQ(next()->packet.op, Op::kRst);  // for the first; a foreign cid gets no answer
  EXPECT_FALSE(next());
}

TEST_F(VsockTest, AnUnknownTypeOrOperationResetsThatStreamOnly) {
  guest_.start();
  const GuestStream first = open();
  UniqueFd kept = std::move(host_);
  const GuestStream second = open();
  Packet odd = second.packet(Op::kRw, 4);
  odd.type = 9;
  guest_.send(odd, "evil");
  EXPECT_EQ(next()->packet.op, Op::kRst);
  run();
  EXPECT_EQ(host_read(), "(end)");
  guest_.send(first.packet(Op::kRw, 4), "good");
  host_ = std::move(kept);
  EXPECT_EQ(host_read(), "good");
  guest_.send(first.packet(static_cast<Op>(77)));
  EXPECT_EQ(next()->packet.op, Op::kRst);
}

TEST_F(VsockTest, ALengthBeyondTheChainResetsTheStream) {
  guest_.start();
  const GuestStream s = open();
  guest_.send(s.packet(Op::kRw, 100), "short");
  EXPECT_EQ(next()->packet.op, Op::kRst);
}

TEST_F(VsockTest, AFloodOfRequestsIsBoundedAndLeavesTheDeviceUsable) {
  guest_.start(0);  // the guest takes no answers
  for (uint32_t i = 0; i < 2000; i++) guest_.send(GuestStream{5000 + i, 6000}.packet(Op::kRequest));
  EXPECT_GE(device_.metrics().resets_dropped, 2000u - VsockDevice::kMaxResets);
  for (int i = 0; i < DriverFake::kRingSize; i++) guest_.post(VsockDevice::kRxQueue, guest_.driver.allocate(4096), 4096);
  guest_.driver.kick(VsockDevice::kRxQueue);
  int answered = 0;
  while (guest_.receive()) answered++;
  EXPECT_EQ(answered, static_cast<int>(VsockDevice::kMaxResets));
  open();
}

TEST_F(VsockTest, TooManyStreamsAreRefused) {
  guest_.start(0);
  int refused = 0;
  for (size_t i = 0; i < VsockDevice::kMaxConnections + 3; i++)
    device_.connect(kPort, deadline_after(1h), [&](Result<UniqueFd> r) { refused += r ? 0 : 1; });
  run();
  EXPECT_EQ(refused, 3);
  guest_.driver.reset();
  run();
  EXPECT_EQ(refused, static_cast<int>(VsockDevice::kMaxConnections) + 3);
}

TEST_F(VsockTest, ADeviceResetEndsAllStreams) {
  guest_.start();
  open();
  guest_.driver.reset();
  run();
  EXPECT_EQ(host_read(), "(end)");
  EXPECT_EQ(device_.metrics().connections, 0u);
}

TEST_F(VsockTest, APauseDoesNotMuteTheStreams) {
  guest_.start();
  const GuestStream s = open();
  ASSERT_TRUE(guest_.driver.transport().quiesce(deadline_after(1s)));
  host_write("during the pause");
  EXPECT_FALSE(guest_.receive());
  guest_.send(s.packet(Op::kRw, 4), "held");  // a kick that came too late
  EXPECT_EQ(host_read(), "(nothing)");
  guest_.driver.transport().resume();
  run();
  EXPECT_EQ(next()->payload, "during the pause");
  EXPECT_EQ(host_read(), "held");
  EXPECT_FALSE(guest_.take_event());
}

TEST_F(VsockTest, AChildAnnouncesTheResetAndSendsNothingBeforeItIsTaken) {
  guest_.start();
  open();
  become_child();
  EXPECT_EQ(host_read(), "(end)");  // in this one-process play the child's close is the only one
  answer_.reset();
  ask();
  EXPECT_FALSE(guest_.receive());
  EXPECT_EQ(guest_.take_event(), vsock::kEventTransportReset);
  const std::optional<Delivery> request = guest_.receive();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->packet.op, Op::kRequest);
  EXPECT_FALSE(guest_.take_event());
}

TEST_F(VsockTest, AConnectThatWaitsForTheGateKeepsItsDeadline) {
  guest_.start();
  become_child();
  ask(1ms);
  loop_->run_once(deadline_after(50ms));
  run();
  EXPECT_EQ(answered_error(), ErrorKind::kTimeout);
  guest_.take_event();
  EXPECT_FALSE(guest_.receive());  // it was never asked, so it is not told
}

TEST_F(VsockTest, AForkBeforeTheEventWasTakenNeedsNoSecondOne) {
  guest_.start();
  become_child();
  become_child();
  EXPECT_EQ(guest_.take_event(), vsock::kEventTransportReset);
  EXPECT_FALSE(guest_.take_event());
  open();
}

TEST_F(VsockTest, WorksAfterAForkOfAForkAHundredTimes) {
  guest_.start();
  uint32_t last_port = 0;
  for (int generation = 0; generation < 100; generation++) {
    const GuestStream s = open();
    EXPECT_GT(s.host_port, last_port);
    last_port = s.host_port;
    guest_.send(s.packet(Op::kRw, 2), "hi");
    EXPECT_EQ(host_read(), "hi");
    become_child();
    EXPECT_EQ(guest_.take_event(), vsock::kEventTransportReset);
  }
}

TEST_F(VsockTest, AChildOfAGuestWithoutEventBuffersAnnouncesWhenThereIsOne) {
  guest_.driver.start(3);
  const GuestAddr rx = guest_.driver.allocate(4096);
  guest_.post(VsockDevice::kRxQueue, rx, 4096);
  become_child();
  ask();
  EXPECT_FALSE(guest_.receive());
  guest_.post(VsockDevice::kEventQueue, guest_.driver.allocate(4), 4);
  guest_.driver.kick(VsockDevice::kEventQueue);
  EXPECT_EQ(guest_.take_event(), vsock::kEventTransportReset);
  EXPECT_EQ(guest_.receive()->packet.op, Op::kRequest);
}

TEST_F(VsockTest, LatePacketsOfTheParentsStreamsAreRefusedInTheChild) {
  guest_.start();
  const GuestStream s = open();
  become_child();
  guest_.take_event();
  guest_.send(s.packet(Op::kRw, 4), "late");
  const std::optional<Delivery> d = next();
  ASSERT_TRUE(d);
  EXPECT_EQ(d->packet.op, Op::kRst);
}

TEST_F(VsockTest, TheParentsStreamsGoOnAfterARealFork) {
  guest_.start();
  const GuestStream s = open();
  ASSERT_TRUE(guest_.driver.transport().quiesce(deadline_after(1s)));
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    // gtest's state is a copy; only the exit status counts.
    guest_.driver.transport().after_fork();
    loop_ = std::move(*EventLoop::create());
    device_.use_loop(*loop_);
    guest_.driver.transport().resume();
    run();
    const bool told = guest_.take_event() == vsock::kEventTransportReset;
    host_.reset();
    const GuestStream again = open();
    guest_.send(again.packet(Op::kRw, 5), "child");
    ::_exit(told && host_read() == "child" ? 0 : 1);
  }
  guest_.driver.transport().resume();
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  run();
  EXPECT_FALSE(guest_.take_event());
  host_write("still there");
  EXPECT_EQ(next()->payload, "still there");
  guest_.send(s.packet(Op::kRw, 6), "indeed");
  EXPECT_EQ(host_read(), "indeed");
}

TEST_F(VsockTest, ARestoredDeviceAnnouncesTooButTouchesNothingBeforeItRuns) {
  guest_.start();
  open();
  ASSERT_TRUE(guest_.driver.transport().quiesce(deadline_after(1s)));
  const std::string state = guest_.driver.transport().save();
  const std::vector<std::byte> before(guest_.driver.ram(), guest_.driver.ram() + DriverFake::kRamBytes);

  VsockDevice restored;
  MmioTransport transport(guest_.driver.memory(), restored, [] {});
  ASSERT_TRUE(transport.restore(state));
  restored.use_loop(*loop_);
  EXPECT_EQ(std::memcmp(before.data(), guest_.driver.ram(), DriverFake::kRamBytes), 0);
  transport.resume();
  EXPECT_NE(std::memcmp(before.data(), guest_.driver.ram(), DriverFake::kRamBytes), 0);
  EXPECT_EQ(restored.metrics().transport_resets, 1u);
}

// The guest echoes in one thread (a vCPU), the event loop runs in another, the host writes and reads in two more.
TEST_F(VsockTest, AnEchoOfManyBytesThroughThreadsOfTheirOwn) {
  constexpr size_t kBytes = 4 << 20;
  guest_.start();
  GuestStream s = open();
  std::thread loop_thread([this] { loop_->run(); });
  std::thread writer([this] {
    std::string chunk(10'000, 0);
    for (size_t sent = 0; sent < kBytes; sent += chunk.size()) {
      chunk.resize(std::min(chunk.size(), kBytes - sent));
      for (size_t i = 0; i < chunk.size(); i++) chunk[i] = static_cast<char>((sent + i) * 31 >> 8);
      size_t done = 0;
      while (done < chunk.size())
        done += static_cast<size_t>(std::max<ssize_t>(0, ::send(host_.get(), chunk.data() + done, chunk.size() - done, 0)));
    }
    ::shutdown(host_.get(), SHUT_WR);
  });
  size_t got = 0, wrong = 0;
  std::thread reader([&] {
    std::string chunk(10'000, 0);
    for (ssize_t n; (n = ::recv(host_.get(), chunk.data(), chunk.size(), 0)) > 0; got += static_cast<size_t>(n))
      for (ssize_t i = 0; i < n; i++)
        wrong += chunk[static_cast<size_t>(i)] != static_cast<char>((got + static_cast<size_t>(i)) * 31 >> 8);
  });
  uint32_t echoed = 0, host_forwarded = 0;
  std::string backlog;
  bool ended = false;
  const Deadline limit = deadline_after(60s);
  while (!(ended && backlog.empty()) && MonotonicClock::now() < limit) {
    const std::optional<Delivery> d = guest_.receive();
    if (d) {
      host_forwarded = d->packet.fwd_cnt;
      backlog += d->payload;
      s.received += static_cast<uint32_t>(d->payload.size());
      ended |= d->packet.op == Op::kShutdown;
      EXPECT_NE(d->packet.op, Op::kRst);
    }
    const size_t n = std::min<size_t>({backlog.size(), 256 * 1024 - (echoed - host_forwarded), 30'000});
    if (n > 0) {
      guest_.send(s.packet(Op::kRw, static_cast<uint32_t>(n)), backlog.substr(0, n));
      backlog.erase(0, n);
      echoed += static_cast<uint32_t>(n);
    } else if (!d) {
      std::this_thread::yield();
    }
  }
  guest_.send(s.packet(Op::kShutdown, 0, kShutdownBoth));
  writer.join();
  reader.join();
  EXPECT_EQ(got, kBytes);
  EXPECT_EQ(wrong, 0u);
  loop_->post([this] { loop_->stop(); });
  loop_thread.join();
  EXPECT_EQ(device_.metrics().connections, 0u);
}

TEST(VsockState, SurvivesEncodingAndRefusesDamage) {
  const vsock::State state{77, vsock::Gate::kAnnounced, 9};
  const std::string bytes = vsock::encode_state(state);
  const Result<vsock::State> back = vsock::decode_state(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, state);
  EXPECT_FALSE(vsock::decode_state(bytes.substr(1)));
  EXPECT_FALSE(vsock::decode_state("\x02" + bytes.substr(1)));
  EXPECT_FALSE(vsock::decode_state(bytes.substr(0, 2) + "\x07" + bytes.substr(3)));
}

}  // namespace
}  // namespace ramet::vmm
