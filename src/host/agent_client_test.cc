// Framing and streams against an agent of our own making (hostile ones too), and against the real ramet-guest when it was
// built.
#include "host/agent_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/child_process.h"
#include "base/file.h"
#include "base/socket.h"
#include "host/agent_streams.h"

namespace ramet::host {
namespace {

constexpr Milliseconds kSoon{2000};
Deadline soon() { return deadline_after(kSoon); }

struct Wire {
  Wire() {
    SocketPair p = *make_socket_pair(SOCK_STREAM);
    host = std::move(p.a);
    guest = std::move(p.b);
  }
  void say(const abi::Event& e) {
    std::string bytes;
    ASSERT_TRUE(abi::append_frame(e, bytes));
    say_raw(bytes);
  }
  void say_raw(std::string_view bytes) { ASSERT_TRUE(write_all(guest.get(), as_bytes(bytes))); }
  UniqueFd host, guest;
};

abi::Event result_with(abi::ErrorCode code, const std::string& message) {
  abi::Event e;
  e.mutable_result()->mutable_error()->set_code(code);
  e.mutable_result()->mutable_error()->set_message(message);
  return e;
}
abi::Request ping() {
  abi::Request r;
  r.mutable_ping();
  return r;
}

TEST(AgentClient, AnErrorOfTheAgentIsOurs) {
  Wire w;
  w.say(result_with(abi::ERROR_GUEST_NOT_QUIESCENT, "a task\x01 hangs"));
  const Result<abi::Result> r = agent_call(std::move(w.host), ping(), soon());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kNotQuiescent);
  EXPECT_EQ(r.error().message(), "a task? hangs");
}

TEST(AgentClient, ASilentGuestCostsTheDeadlineOnly) {
  Wire w;
  const Result<abi::Result> r = agent_call(std::move(w.host), ping(), deadline_after(Milliseconds(50)));
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kTimeout);
}

TEST(AgentClient, AClosedConnectionIsUnavailable) {
  Wire w;
  w.guest.reset();
  const Result<abi::Result> r = agent_call(std::move(w.host), ping(), soon());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kUnavailable);
}

TEST(AgentClient, AFrameOverTheLimitEndsTheChannel) {
  Wire w;
  w.say_raw(std::string("\xff\xff\xff\x7f", 4));
  const Result<abi::Result> r = agent_call(std::move(w.host), ping(), soon());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kCorrupt);
}

TEST(AgentClient, GarbageEndsTheChannel) {
  Wire w;
  w.say_raw(std::string("\x03\0\0\0\xff\xff\xff", 7));
  const Result<abi::Result> r = agent_call(std::move(w.host), ping(), soon());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kCorrupt);
}

TEST(AgentClient, AnEventInsteadOfTheResultIsCorrupt) {
  Wire w;
  abi::Event e;
  e.mutable_started()->set_pid(1);
  w.say(e);
  const Result<abi::Result> r = agent_call(std::move(w.host), ping(), soon());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kCorrupt);
}

TEST(AgentClient, FramesMayArriveByteByByte) {
  Wire w;
  abi::Event e;
  e.mutable_result()->mutable_pong()->set_version("1");
  std::string bytes;
  ASSERT_TRUE(abi::append_frame(e, bytes));
  std::thread slow([&] {
    for (const char c : bytes) {
      w.say_raw(std::string_view(&c, 1));
      std::this_thread::sleep_for(Milliseconds(1));
    }
  });
  const Result<abi::Result> r = agent_call(std::move(w.host), ping(), soon());
  slow.join();
  ASSERT_TRUE(r);
  EXPECT_EQ(r->pong().version(), "1");
}

TEST(AgentClient, CancelWakesAWaitingReader) {
  Wire w;
  AgentChannel channel(std::move(w.host));
  std::thread other([&] {
    std::this_thread::sleep_for(Milliseconds(30));
    channel.cancel();
  });
  const Result<abi::Event> r = channel.receive(deadline_after(Milliseconds(10'000)));
  other.join();
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kCancelled);
}

TEST(AgentClient, AGuestThatDoesNotReadCannotHoldTheWriter) {
  Wire w;
  AgentChannel channel(std::move(w.host));
  abi::Input input;
  input.mutable_data()->set_bytes(std::string(abi::kChunkBytes, 'x'));
  Status sent;
  for (int i = 0; i < 1000 && sent; i++) sent = channel.send(input, deadline_after(Milliseconds(20)));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().kind(), ErrorKind::kTimeout);
}

TEST(Printable, LeavesWholeCharactersOnly) {
  EXPECT_EQ(printable("a\xc3\xa4\n", 10), "a\xc3\xa4\n");
  EXPECT_EQ(printable("\xff\x1b[0m\r", 10), "??[0m");
  EXPECT_EQ(printable("\xed\xa0\x80", 10), "???");
  EXPECT_EQ(printable("ab\xc3\xa4", 3), "ab");
}

TEST(GuestPath, MustBeAbsoluteAndBounded) {
  EXPECT_TRUE(check_guest_path("/a"));
  for (const std::string& bad : {std::string(), std::string("a"), std::string("/a\0b", 4), "/" + std::string(5000, 'a')})
    EXPECT_FALSE(check_guest_path(bad));
}

// ---- with the real agent ----

class RealAgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the agent forks and works on in the child, which ThreadSanitizer cannot follow";
#endif
    const std::string program = std::string(RAMET_BINARY_DIR) + "/bin/ramet-guest";
    if (::access(program.c_str(), X_OK) != 0) GTEST_SKIP() << "ramet-guest was not built";
    char path[] = "/tmp/ramet-agent-XXXXXX";
    dir_ = ::mkdtemp(path);
    SpawnOptions spawn;
    spawn.argv = {program, "--serve-unix", dir_ + "/s"};
    const Result<UniqueFd> null = open_file("/dev/null", O_RDWR);
    spawn.stdout_fd = null->get();
    spawn.stderr_fd = null->get();
    Result<ChildProcess> agent = ChildProcess::spawn(spawn);
    ASSERT_TRUE(agent);
    agent_.emplace(std::move(*agent));
  }
  void TearDown() override {
    agent_.reset();
    std::error_code ec;
    if (!dir_.empty()) std::filesystem::remove_all(dir_, ec);
  }
  UniqueFd stream() {
    for (int i = 0; i < 200; i++) {
      if (Result<UniqueFd> s = connect_unix(dir_ + "/s", SOCK_STREAM)) return std::move(*s);
      std::this_thread::sleep_for(Milliseconds(10));
    }
    return {};
  }
  std::string dir_;
  std::optional<ChildProcess> agent_;
};

TEST_F(RealAgentTest, RunsACommandWithInputAndOutput) {
  ExecOptions o;
  o.shell = "read line; echo got $line; cat; exit 3";  // cat: it ends when its input does, not before we close that
  o.stdin_open = true;
  Result<std::unique_ptr<ExecStream>> s = start_exec(stream(), {}, o, kSoon);
  ASSERT_TRUE(s) << s.error().to_string();
  ASSERT_TRUE((*s)->write_stdin("hello\n", soon()));
  ASSERT_TRUE((*s)->close_stdin());
  std::string out;
  std::optional<ExitInfo> exit;
  while (!exit) {
    const Result<std::optional<ExecEvent>> e = (*s)->next(soon());
    ASSERT_TRUE(e) << e.error().to_string();
    ASSERT_TRUE(*e);
    if ((*e)->kind == ExecEvent::Kind::kStdout) out += (*e)->data;
    if ((*e)->kind == ExecEvent::Kind::kExit) exit = (*e)->exit;
  }
  EXPECT_EQ(out, "got hello\n");
  EXPECT_EQ(exit->code, 3u);
  EXPECT_FALSE(*(*s)->next(soon()));
}

TEST_F(RealAgentTest, AProgramThatDoesNotExistFailsTheCall) {
  ExecOptions o;
  o.argv = {"/no/such/program"};
  const Result<std::unique_ptr<ExecStream>> s = start_exec(stream(), {}, o, kSoon);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().kind(), ErrorKind::kNotFound);
}

TEST_F(RealAgentTest, AFileGoesInAndOut) {
  std::string bytes(300'000, '\0');
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<char>(i * 7 >> 3);
  Result<std::unique_ptr<FileWriter>> w = start_write(stream(), {}, dir_ + "/sub/file", {}, kSoon);
  ASSERT_TRUE(w);
  ASSERT_TRUE((*w)->write(as_bytes(bytes), soon()));
  const Result<FileInfo> info = (*w)->finish(soon());
  ASSERT_TRUE(info) << info.error().to_string();
  EXPECT_EQ(info->size_bytes, bytes.size());
  Result<std::unique_ptr<FileReader>> r = start_read(stream(), {}, dir_ + "/sub/file", {}, kSoon);
  ASSERT_TRUE(r);
  std::string back;
  for (;;) {
    const Result<std::optional<std::string>> piece = (*r)->next(soon());
    ASSERT_TRUE(piece);
    if (!*piece) break;
    back += **piece;
  }
  EXPECT_EQ(back, bytes);
}

TEST_F(RealAgentTest, AMissingFileFailsTheCall) {
  const Result<std::unique_ptr<FileReader>> r = start_read(stream(), {}, "/no/such/file", {}, kSoon);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kNotFound);
}

}  // namespace
}  // namespace ramet::host
