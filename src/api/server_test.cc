// The server over a real unix socket and TCP, with a fake host behind it: raw bytes in, raw bytes out.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>

#include "api/host_guard.h"
#include "api/http_server.h"
#include "api/idempotency.h"
#include "api/listen.h"
#include "api/live_commands.h"
#include "api/routes.h"
#include "api/testing/fake_host.h"
#include "base/file.h"
#include "base/socket.h"
#include "base/testing/no_descriptors.h"

namespace ramet::api {
namespace {

constexpr Milliseconds kPatience{10'000};

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    start({});
  }
  void start(HttpOptions options) {
    server_.reset();
    path_ = (std::filesystem::temp_directory_path() / ("ramet_server_test." + std::to_string(::getpid()))).string();
    options.stop_grace = Milliseconds(200);
    server_ = std::make_unique<HttpServer>(
        options, [this](Exchange& e) { dispatch(context_, e); },
        [this](const AccessRecord& r) {
          const std::lock_guard lock(mutex_);
          log_.push_back(r);
        });
    Result<UniqueFd> listener = listen_on_unix(path_);
    ASSERT_TRUE(listener) << listener.error().message();
    server_->add_listener(std::move(*listener), nullptr);
    Result<TcpListener> tcp = listen_on_tcp("127.0.0.1:0", Reach::kLoopbackOnly);
    ASSERT_TRUE(tcp) << tcp.error().message();
    port_ = static_cast<uint16_t>(std::stoi(tcp->address.substr(tcp->address.rfind(':') + 1)));
    server_->add_listener(std::move(tcp->fd), HostGuard({}));
    ASSERT_TRUE(server_->start());
  }
  void TearDown() override { server_.reset(); }

  UniqueFd connect() {
    Result<UniqueFd> fd = connect_unix(path_, SOCK_STREAM);
    EXPECT_TRUE(fd);
    return fd ? std::move(*fd) : UniqueFd();
  }
  // Sends and reads until the server closes or `until` was seen.
  static std::string talk(int fd, const std::string& text, const std::string& until = "") {
    EXPECT_TRUE(write_all(fd, as_bytes(text)));
    return read_until(fd, until);
  }
  static std::string read_until(int fd, const std::string& until) {
    std::string got;
    const Deadline deadline = deadline_after(kPatience);
    while (until.empty() || got.find(until) == std::string::npos) {
      if (!wait_for(fd, POLLIN, deadline)) return got + "<timeout>";
      char piece[4096];
      const ssize_t n = ::recv(fd, piece, sizeof piece, 0);
      if (n <= 0) return got;
      got.append(piece, static_cast<size_t>(n));
    }
    return got;
  }
  std::string once(const std::string& head, const std::string& body = "") {
    const UniqueFd fd = connect();
    return talk(fd.get(), head + "\r\nHost: localhost\r\nConnection: close\r\n" +
                              (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body);
  }
  std::string new_sandbox() { return host_.create({.template_name = "base"})->id; }

  testing::FakeHost host_;
  IdempotencyTable idempotency_;
  LiveCommands live_;
  Context context_{host_, idempotency_, live_};
  std::string path_;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::vector<AccessRecord> log_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ServerTest, AnswersAndNamesTheRequest) {
  const std::string answer = once("GET /v1/health HTTP/1.1");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_NE(answer.find("Ramet-Request-Id: req_"), std::string::npos);
  EXPECT_NE(answer.find(R"("status":"ok")"), std::string::npos);
}

TEST_F(ServerTest, KeepsTheConnectionAndPipelines) {
  const UniqueFd fd = connect();
  const std::string request = "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_TRUE(
      write_all(fd.get(), as_bytes(request + request + "GET /v1/tree HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")));
  const std::string all = read_until(fd.get(), "");
  size_t answers = 0;
  for (size_t at = all.find("HTTP/1.1 200"); at != std::string::npos; at = all.find("HTTP/1.1 200", at + 1)) answers++;
  EXPECT_EQ(answers, 3u) << all;
}

TEST_F(ServerTest, UnknownPathsAndMethods) {
  EXPECT_TRUE(once("GET /v2/health HTTP/1.1").starts_with("HTTP/1.1 404"));
  const std::string answer = once("DELETE /v1/sandboxes HTTP/1.1");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 405")) << answer;
  EXPECT_NE(answer.find("Allow: GET, POST\r\n"), std::string::npos);
  EXPECT_NE(answer.find("\"code\":\"method_not_allowed\""), std::string::npos);
}

TEST_F(ServerTest, BrokenRequestsGetAnAnswerAndTheEnd) {
  const UniqueFd fd = connect();
  EXPECT_TRUE(talk(fd.get(), "this is not http\r\n\r\n").starts_with("HTTP/1.1 400"));
  const UniqueFd big = connect();
  EXPECT_NE(talk(big.get(), "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n").find("longer than 16384"),
            std::string::npos);
}

TEST_F(ServerTest, TooLargeJsonIsRefusedWithTheLimit) {
  const std::string answer =
      once("POST /v1/sandboxes HTTP/1.1\r\nContent-Type: application/json", std::string((1 << 20) + 1, ' '));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400")) << answer.substr(0, 300);
  EXPECT_NE(answer.find("1048576"), std::string::npos);
}

// Each piece becomes a packet to the guest: 512 bytes at a time made uploads four times slower.
TEST_F(ServerTest, AFileIsHandedOverInLargePieces) {
  const std::string path = ::testing::TempDir() + "ramet-large-pieces";
  const std::string body(4 << 20, 'x');
  const std::string answer = once("PUT /v1/sandboxes/" + new_sandbox() + "/files?path=" + path + " HTTP/1.1", body);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer;
  EXPECT_LE(host_.file_writes, (4 << 20) / 16384);
  ::unlink(path.c_str());
}

TEST_F(ServerTest, TcpTakesOnlyOwnNames) {
  const auto ask = [&](const std::string& headers) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return talk(fd.get(), "GET /v1/health HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n");
  };
  EXPECT_TRUE(ask("Host: 127.0.0.1:80\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(ask("Host: evil.example\r\n").starts_with("HTTP/1.1 403"));
  EXPECT_TRUE(ask("").starts_with("HTTP/1.1 403"));
  EXPECT_NE(ask("Host: localhost\r\nOrigin: http://evil.example\r\n").find("forbidden_origin"), std::string::npos);
}

TEST_F(ServerTest, SaysContinueOnlyToWhomItListens) {
  const UniqueFd fd = connect();
  const std::string head =
      "POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 19\r\n\r\n";
  EXPECT_EQ(talk(fd.get(), head, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_TRUE(talk(fd.get(), R"({"template":"base"})").starts_with("HTTP/1.1 201"));
  const UniqueFd other = connect();
  EXPECT_TRUE(talk(other.get(), "POST /v1/nowhere HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
                  .starts_with("HTTP/1.1 404"));
}

TEST_F(ServerTest, PastTheBoundClientsAreToldAtOnce) {
  HttpOptions two;
  two.max_connections = 2;
  start(two);
  const UniqueFd a = connect(), b = connect();
  EXPECT_TRUE(talk(a.get(), "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", "}").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(talk(b.get(), "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", "}").starts_with("HTTP/1.1 200"));
  const UniqueFd c = connect();
  const std::string answer = read_until(c.get(), "");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
  EXPECT_NE(answer.find("all 2 connections"), std::string::npos);
}

TEST_F(ServerTest, WithoutADescriptorClientsAreToldAtOnceAndOthersAreServed) {
  const std::string health = "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n";
  const UniqueFd before = connect();
  EXPECT_TRUE(talk(before.get(), health, "}").starts_with("HTTP/1.1 200"));
  ramet::testing::NoDescriptors none;
  none.spare(1);
  const UniqueFd refused = connect();  // takes it
  const std::string answer = read_until(refused.get(), "");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
  EXPECT_NE(answer.find("no file descriptor left"), std::string::npos) << answer;
  EXPECT_NE(answer.find("LimitNOFILE"), std::string::npos) << answer;
  EXPECT_LT(ramet::testing::cpu_time_during(Milliseconds(500)), Milliseconds(50));
  EXPECT_TRUE(talk(before.get(), health, "}").starts_with("HTTP/1.1 200"));
  none.release();
  EXPECT_TRUE(once("GET /v1/health HTTP/1.1").starts_with("HTTP/1.1 200"));
}

TEST_F(ServerTest, SilentClientsAreLeft) {
  HttpOptions hurried;
  hurried.header_timeout = Milliseconds(100);
  hurried.body_timeout = Milliseconds(100);
  start(hurried);
  const UniqueFd head = connect();
  EXPECT_TRUE(talk(head.get(), "GET /v1/hea").starts_with("HTTP/1.1 504"));
  const UniqueFd body = connect();
  EXPECT_TRUE(
      talk(body.get(), "POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{").starts_with("HTTP/1.1 504"));
}

TEST_F(ServerTest, EventsComeAsTheyHappen) {
  const UniqueFd fd = connect();
  const std::string body = R"({"command":"echo one; sleep 0.3; echo two","stream":true})";
  const std::string first = talk(fd.get(),
                                 "POST /v1/sandboxes/" + new_sandbox() + "/exec HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                                     std::to_string(body.size()) + "\r\n\r\n" + body,
                                 "one");
  EXPECT_NE(first.find("application/x-ndjson"), std::string::npos);
  EXPECT_EQ(first.find("two"), std::string::npos);
  const std::string rest = read_until(fd.get(), "\r\n0\r\n\r\n");
  EXPECT_NE(rest.find("two"), std::string::npos);
  EXPECT_NE(rest.find("\"type\":\"exit\",\"exit_code\":0"), std::string::npos);
}

TEST_F(ServerTest, AClientThatVanishesEndsItsCommand) {
  const std::string id = new_sandbox();
  const std::string body = R"({"argv":["sleep","100"],"stream":true})";
  {
    const UniqueFd fd = connect();
    talk(fd.get(),
         "POST /v1/sandboxes/" + id + "/exec HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
             "\r\n\r\n" + body,
         "started");
  }
  const Deadline deadline = deadline_after(kPatience);
  while (host_.processes(id)->front().running && time_left(deadline).count() > 0) ::poll(nullptr, 0, 20);
  EXPECT_FALSE(host_.processes(id)->front().running);
}

TEST_F(ServerTest, AnAttachedClientThatVanishesLeavesTheCommand) {
  const std::string id = new_sandbox();
  const std::unique_ptr<host::ExecStream> stream = *host_.exec(id, {.argv = {"sleep", "100"}});
  const uint32_t pid = (*stream->next(deadline_after(kPatience)))->pid;
  {
    const UniqueFd fd = connect();
    talk(fd.get(), "GET /v1/sandboxes/" + id + "/processes/" + std::to_string(pid) + "/output HTTP/1.1\r\nHost: x\r\n\r\n",
         "started");
  }
  ::poll(nullptr, 0, 800);
  EXPECT_TRUE(host_.processes(id)->front().running);
}

TEST_F(ServerTest, StoppingEndsStreamsButNotCommands) {
  const std::string id = new_sandbox();
  const UniqueFd fd = connect();
  const std::string body = R"({"argv":["sleep","100"],"stream":true})";
  talk(fd.get(),
       "POST /v1/sandboxes/" + id + "/exec HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body,
       "started");
  std::jthread stopper([&] { server_->stop(); });
  const std::string rest = read_until(fd.get(), "");
  stopper.join();
  EXPECT_TRUE(host_.processes(id)->front().running);
  EXPECT_FALSE(connect_unix(path_, SOCK_STREAM));
}

TEST_F(ServerTest, IdleConnectionsDoNotDelayTheStop) {
  const UniqueFd idle = connect();
  talk(idle.get(), "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", "}");
  const Deadline begin = MonotonicClock::now();
  server_->stop();
  EXPECT_LT(MonotonicClock::now() - begin, Milliseconds(2000));
}

TEST_F(ServerTest, StdinOfAnExecIsWrittenWhileOutputIsRead) {
  // More than two pipes hold: writing all before reading would never end.
  const std::string data(1'000'000 - 1000, 'y');
  const std::string body = R"({"argv":["cat"],"stdin":")" + data + "\"}";
  const std::string answer = once("POST /v1/sandboxes/" + new_sandbox() + "/exec HTTP/1.1", body);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200")) << answer.substr(0, 300);
  EXPECT_NE(answer.find(data), std::string::npos);
}

TEST_F(ServerTest, LongOutputKeepsItsEnd) {
  const std::string body = R"({"command":"head -c 20000000 /dev/zero | tr '\\0' a; echo end"})";
  const std::string answer = once("POST /v1/sandboxes/" + new_sandbox() + "/exec HTTP/1.1", body);
  EXPECT_NE(answer.find("\"stdout_truncated\":true"), std::string::npos);
  EXPECT_NE(answer.find("aaaend\\n\""), std::string::npos);
  EXPECT_LT(answer.size(), (8u << 20) + 2000);
}

TEST_F(ServerTest, IdempotencyKeyMakesOneSandbox) {
  const std::string head = "POST /v1/sandboxes HTTP/1.1\r\nIdempotency-Key: abc";
  const std::string first = once(head, R"({"template":"base"})"), second = once(head, R"({"template":"base"})");
  EXPECT_EQ(host_.creates, 1);
  EXPECT_EQ(first.substr(first.find("\r\n\r\n")), second.substr(second.find("\r\n\r\n")));
  EXPECT_TRUE(once(head, R"({"template":"slow"})").starts_with("HTTP/1.1 409"));
  EXPECT_TRUE(
      once("POST /v1/sandboxes HTTP/1.1\r\nIdempotency-Key: a b", R"({"template":"base"})").starts_with("HTTP/1.1 400"));
}

TEST_F(ServerTest, EveryRequestIsLogged) {
  once("GET /v1/health HTTP/1.1");
  once("GET /v1/sandboxes/none HTTP/1.1");
  server_->stop();
  const std::lock_guard lock(mutex_);
  ASSERT_EQ(log_.size(), 2u);
  EXPECT_EQ(log_[0].status, 200);
  EXPECT_EQ(log_[1].status, 404);
  EXPECT_EQ(log_[1].target, "/v1/sandboxes/none");
}

TEST(Listen, RefusesWhatWouldOpenTheMachine) {
  EXPECT_EQ(listen_on_tcp("0.0.0.0:0", Reach::kLoopbackOnly).error().kind(), ErrorKind::kPermission);
  EXPECT_TRUE(listen_on_tcp("0.0.0.0:0", Reach::kAnyAddress));
  EXPECT_EQ(listen_on_tcp("localhost:80", Reach::kLoopbackOnly).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(listen_on_tcp("127.0.0.1:99999", Reach::kLoopbackOnly).error().kind(), ErrorKind::kInvalid);
}

TEST(Listen, ASecondDaemonIsToldOfTheFirst) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("ramet_listen_test." + std::to_string(::getpid()))).string();
  const Result<UniqueFd> first = listen_on_unix(path);
  ASSERT_TRUE(first);
  EXPECT_EQ(listen_on_unix(path).error().kind(), ErrorKind::kExists);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace ramet::api
