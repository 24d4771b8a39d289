// Client and server against each other, and each against a peer that breaks the protocol.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <thread>

#include "base/file.h"
#include "base/socket.h"
#include "base/testing/no_descriptors.h"
#include "vmm/control/bootstrap.h"
#include "vmm/control/client.h"
#include "vmm/control/server.h"

namespace ramet::vmm::control {
namespace {

Deadline soon() { return deadline_after(std::chrono::seconds(5)); }

// A server on its own loop thread, reached by connect().
class ControlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/ramet-control-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    path_ = directory_ + "/socket";
    loop_ = *EventLoop::create();
    server_ = std::make_unique<Server>(
        *loop_, [this](Server::Ticket t, const Request& r, ReceivedFds fds) { handle(t, r, std::move(fds)); });
    ASSERT_TRUE(server_->listen(*listen_unix(path_, SOCK_SEQPACKET, 4)));
    thread_ = std::thread([this] { loop_->run(); });
  }
  void TearDown() override {
    loop_->post([this] { loop_->stop(); });
    thread_.join();
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  void on_loop(std::function<void()> work) {
    std::promise<void> done;
    loop_->post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  void handle(Server::Ticket ticket, const Request& request, ReceivedFds) {
    requests_++;
    if (request.has_ping()) return server_->respond_ok(ticket);
    if (request.has_get_stats()) {  // an answer of the wrong kind
      Response r;
      r.mutable_connected();
      return server_->respond(ticket, std::move(r));
    }
    if (request.has_connect()) {
      SocketPair pair = *make_socket_pair(SOCK_STREAM);
      FdsToSend fds;
      Response r;
      r.mutable_connected()->set_stream_fd(fds.add(pair.a.get()));
      guest_end_ = std::move(pair.b);  // before the answer: the test reads it then
      server_->respond(ticket, std::move(r), fds.fds());
      return;
    }
    if (request.has_pause()) server_->respond_error(ticket, Error(ErrorKind::kNotQuiescent, "busy"));
    // resume: never answered
  }
  std::unique_ptr<Client> connect(Client::OnEvent on_event = {}, Client::OnClosed on_closed = {}) {
    return *Client::connect(path_, std::move(on_event), std::move(on_closed));
  }
  std::string directory_, path_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  std::atomic<int> requests_{0};
  UniqueFd guest_end_;
};

TEST_F(ControlTest, CallsAreAnswered) {
  const std::unique_ptr<Client> client = connect();
  EXPECT_TRUE(client->ping(soon()));
}

TEST_F(ControlTest, FailuresKeepKindAndMessage) {
  const Status paused = connect()->pause(soon());
  EXPECT_EQ(paused.error().kind(), ErrorKind::kNotQuiescent);
  EXPECT_EQ(paused.error().message(), "busy");
}

TEST_F(ControlTest, AnswerOfAnotherKindIsCorrupt) { EXPECT_EQ(connect()->stats(soon()).error().kind(), ErrorKind::kCorrupt); }

TEST_F(ControlTest, SilenceCostsTheDeadlineOnly) {
  const std::unique_ptr<Client> client = connect();
  EXPECT_EQ(client->resume(deadline_after(Milliseconds(50))).error().kind(), ErrorKind::kTimeout);
  EXPECT_TRUE(client->ping(soon()));
}

TEST_F(ControlTest, DescriptorsArrive) {
  const UniqueFd stream = *connect()->connect_guest(7, Milliseconds(1000));
  ASSERT_TRUE(write_all(stream.get(), as_bytes("x")));
  char c = 0;
  ASSERT_TRUE(read_exact(guest_end_.get(), std::as_writable_bytes(std::span(&c, 1))));
  EXPECT_EQ(c, 'x');
}

TEST_F(ControlTest, ManyThreadsShareOneConnection) {
  const std::unique_ptr<Client> client = connect();
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; i++) good += client->ping(soon()).has_value();
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, 200);
}

TEST_F(ControlTest, EventsWaitForAConnection) {
  Event event;
  event.mutable_debug_port()->set_value(42);
  on_loop([&] { server_->send_event(event); });
  std::promise<uint32_t> got;
  const std::unique_ptr<Client> client = connect([&](const Event& e) { got.set_value(e.debug_port().value()); });
  EXPECT_EQ(got.get_future().get(), 42u);
}

TEST_F(ControlTest, NewConnectionReplacesTheOld) {
  std::promise<void> closed;
  const std::unique_ptr<Client> old = connect({}, [&] { closed.set_value(); });
  ASSERT_TRUE(old->ping(soon()));
  const std::unique_ptr<Client> fresh = connect();
  EXPECT_TRUE(fresh->ping(soon()));
  closed.get_future().wait();
  EXPECT_EQ(old->ping(soon()).error().kind(), ErrorKind::kUnavailable);
}

TEST_F(ControlTest, WithoutADescriptorTheOldConnectionMakesRoomForTheNew) {
  const std::unique_ptr<Client> old = connect();
  ASSERT_TRUE(old->ping(soon()));
  ramet::testing::NoDescriptors none;
  none.spare(1);
  const UniqueFd fresh = *connect_unix(path_, SOCK_SEQPACKET);  // takes it
  Request request;
  request.set_id(1);
  request.mutable_ping();
  ASSERT_TRUE(send(fresh.get(), request, {}, soon()));
  FromVmm answer;
  ASSERT_TRUE(receive(fresh.get(), answer, soon()));
  EXPECT_EQ(answer.response().id(), 1u);
}

TEST_F(ControlTest, WithoutADescriptorTheFirstConnectionWaitsAndTheLoopDoesNotSpin) {
  ramet::testing::NoDescriptors none;
  none.spare(1);
  const UniqueFd fresh = *connect_unix(path_, SOCK_SEQPACKET);  // takes it
  EXPECT_LT(ramet::testing::cpu_time_during(Milliseconds(500)), Milliseconds(50));
  on_loop([] {});
  none.release();
  Request request;
  request.set_id(1);
  request.mutable_ping();
  ASSERT_TRUE(send(fresh.get(), request, {}, soon()));
  FromVmm answer;
  ASSERT_TRUE(receive(fresh.get(), answer, soon()));
  EXPECT_EQ(answer.response().id(), 1u);
}

TEST_F(ControlTest, GarbageEndsTheConnectionNotTheServer) {
  const UniqueFd rogue = *connect_unix(path_, SOCK_SEQPACKET);
  ASSERT_TRUE(send_message(rogue.get(), as_bytes("\xff\xff garbage"), {}, soon()));
  FromVmm message;
  EXPECT_EQ(receive(rogue.get(), message, soon()).error().kind(), ErrorKind::kUnavailable);
  EXPECT_TRUE(connect()->ping(soon()));
}

TEST_F(ControlTest, RequestWithoutIdEndsTheConnection) {
  const UniqueFd rogue = *connect_unix(path_, SOCK_SEQPACKET);
  Request request;
  request.mutable_ping();
  ASSERT_TRUE(send(rogue.get(), request, {}, soon()));
  FromVmm message;
  EXPECT_EQ(receive(rogue.get(), message, soon()).error().kind(), ErrorKind::kUnavailable);
  EXPECT_EQ(requests_, 0);
}

TEST_F(ControlTest, PeerThatDoesNotReadLosesItsConnection) {
  const UniqueFd rogue = *connect_unix(path_, SOCK_SEQPACKET);
  Request request;
  request.set_id(1);
  request.mutable_ping();
  ASSERT_TRUE(send(rogue.get(), request, {}, soon()));
  while (requests_ == 0) std::this_thread::yield();
  Event event;
  event.mutable_ended()->set_detail(std::string(200, 'x'));
  on_loop([&] {
    for (int i = 0; i < 20000; i++) server_->send_event(event);
  });
  EXPECT_TRUE(connect()->ping(soon()));
}

// Request numbers begin anew with each connection: an answer of the old one must never reach the new one.
TEST_F(ControlTest, AnswersDieWithTheirConnection) {
  const UniqueFd rogue = *connect_unix(path_, SOCK_SEQPACKET);
  Request request;
  request.mutable_ping();
  int sent = 0;
  for (; sent < 1000; sent++) {
    request.set_id(static_cast<uint64_t>(sent) + 1);
    if (!send(rogue.get(), request, {}, deadline_after(Milliseconds(200)))) break;
  }
  while (requests_ < sent) std::this_thread::yield();
  const UniqueFd fresh = *connect_unix(path_, SOCK_SEQPACKET);
  FromVmm message;
  EXPECT_EQ(receive(fresh.get(), message, deadline_after(Milliseconds(200))).error().kind(), ErrorKind::kTimeout);
}

TEST_F(ControlTest, FloodOfUnreadAnswersEndsTheConnection) {
  const UniqueFd rogue = *connect_unix(path_, SOCK_SEQPACKET);
  Request request;
  request.mutable_ping();
  request.set_id(1);
  while (send(rogue.get(), request, {}, soon())) {
  }
  EXPECT_TRUE(connect()->ping(soon()));
}

TEST(Client, AnswersNobodyAskedForAreDropped) {
  SocketPair pair = *make_socket_pair(SOCK_SEQPACKET);
  const std::unique_ptr<Client> client = Client::adopt(std::move(pair.a), {});
  FromVmm message;
  message.mutable_response()->set_id(99);
  message.mutable_response()->mutable_ok();
  ASSERT_TRUE(send(pair.b.get(), message, {}, soon()));
  EXPECT_EQ(client->ping(deadline_after(Milliseconds(50))).error().kind(), ErrorKind::kTimeout);
}

TEST(Client, GarbageFromTheMonitorIsUnavailable) {
  SocketPair pair = *make_socket_pair(SOCK_SEQPACKET);
  const std::unique_ptr<Client> client = Client::adopt(std::move(pair.a), {});
  ASSERT_TRUE(send_message(pair.b.get(), as_bytes("\xff\xff"), {}, soon()));
  EXPECT_EQ(client->ping(soon()).error().kind(), ErrorKind::kUnavailable);
}

TEST(Client, StreamWithoutItsDescriptorIsAnError) {
  SocketPair pair = *make_socket_pair(SOCK_SEQPACKET);
  const std::unique_ptr<Client> client = Client::adopt(std::move(pair.a), {});
  FromVmm message;
  message.mutable_response()->set_id(1);
  message.mutable_response()->mutable_connected()->set_stream_fd(1);
  std::thread monitor([&] {
    Request request;
    static_cast<void>(receive(pair.b.get(), request, soon()));
    static_cast<void>(send(pair.b.get(), message, {}, soon()));
  });
  EXPECT_EQ(client->connect_guest(1, Milliseconds(5000)).error().kind(), ErrorKind::kInvalid);
  monitor.join();
}

TEST(ReceivedFds, IndexesAreCheckedAndUsedOnce) {
  std::vector<UniqueFd> fds;
  fds.push_back(*make_memfd("x", 0));
  ReceivedFds received(std::move(fds));
  EXPECT_EQ(received.take(0, "a").error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(received.take(2, "a").error().kind(), ErrorKind::kInvalid);
  EXPECT_TRUE(received.take(1, "a"));
  EXPECT_EQ(received.take(1, "a").error().kind(), ErrorKind::kInvalid);
}

TEST(BootstrapSocket, FailureOfTheMonitorArrives) {
  BootstrapSocket::Pair pair = *BootstrapSocket::make_pair();
  BootstrapReply reply;
  *reply.mutable_failed() = to_failure(Error(ErrorKind::kCorrupt, "no kernel"));
  ASSERT_TRUE(send(pair.theirs.get(), reply, {}, soon()));
  EXPECT_EQ(pair.ours.wait_ready(soon()).error().kind(), ErrorKind::kCorrupt);
}

TEST(BootstrapSocket, DeathBeforeReadyIsUnavailable) {
  BootstrapSocket::Pair pair = *BootstrapSocket::make_pair();
  pair.theirs.reset();
  EXPECT_EQ(pair.ours.wait_ready(soon()).error().kind(), ErrorKind::kUnavailable);
}

}  // namespace
}  // namespace ramet::vmm::control
