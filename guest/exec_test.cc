// Commands, driven through the real agent program.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "testing/agent_client.h"

namespace ramet::guest {
namespace {

using namespace std::chrono_literals;

class Exec : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(agent_.ready()); }

  // Polls, because the end of a foreign process is not an event we get.
  static bool gone_within(pid_t pid, Milliseconds patience) {
    const Deadline deadline = deadline_after(patience);
    while (::kill(pid, 0) == 0) {
      if (time_left(deadline).count() == 0) return false;
      std::this_thread::sleep_for(5ms);
    }
    return true;
  }

  TestAgent agent_;
};

TEST_F(Exec, SeparatesStreamsAndReportsTheExitCode) {
  const Call::Outcome o = call(agent_, shell("echo out; echo err >&2; exit 7"));
  ASSERT_TRUE(o.complete);
  EXPECT_EQ(o.out, "out\n");
  EXPECT_EQ(o.err, "err\n");
  EXPECT_EQ(o.result.exit().code(), 7u);
  EXPECT_EQ(o.result.exit().signal(), 0u);
  EXPECT_GT(o.pid, 0u);
}

TEST_F(Exec, ArgvIsNotInterpretedByAShell) {
  abi::Request request;
  for (const char* arg : {"printf", "%s|", "$HOME", "a b", ""}) request.mutable_exec()->add_argv(arg);
  EXPECT_EQ(call(agent_, request).out, "$HOME|a b||");
}

TEST_F(Exec, UnknownProgramIsAnErrorNotAnExit) {
  abi::Request request;
  request.mutable_exec()->add_argv("/no/such/program");
  const Call::Outcome o = call(agent_, request);
  ASSERT_TRUE(o.result.has_error());
  EXPECT_EQ(o.result.error().code(), abi::ERROR_NOT_FOUND);
  EXPECT_EQ(o.result.error().sys_errno(), ENOENT);
}

TEST_F(Exec, UnknownUserAndDirectoryAreErrors) {
  abi::Request request = shell("true");
  request.mutable_exec()->set_user("nobody-of-that-name");
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_NOT_FOUND);
  request = shell("true");
  request.mutable_exec()->set_cwd("/no/such/directory");
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_NOT_FOUND);
}

TEST_F(Exec, NothingToRunIsInvalid) {
  abi::Request request;
  request.mutable_exec();
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_INVALID);
}

TEST_F(Exec, EnvironmentAndDirectory) {
  abi::Request request = shell("echo $GREETING; pwd; echo $HOME");
  (*request.mutable_exec()->mutable_env())["GREETING"] = "hello";
  request.mutable_exec()->set_cwd("/usr");
  EXPECT_EQ(call(agent_, request).out, "hello\n/usr\n/root\n");
}

TEST_F(Exec, RunsAsTheNamedUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  abi::Request request = shell("id -un; id -gn; cat /proc/self/oom_score_adj");
  request.mutable_exec()->set_user("nobody");
  EXPECT_EQ(call(agent_, request).out, "nobody\nnogroup\n0\n");
}

TEST_F(Exec, ProgramHasOnlyItsThreeDescriptorsAndDefaultSignals) {
  const Call::Outcome o = call(agent_, shell("ls /proc/self/fd | wc -l; grep -E 'SigBlk|SigIgn' /proc/self/status"));
  EXPECT_EQ(o.out, "4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");  // 4: ls itself opens one
}

TEST_F(Exec, StdinIsStreamedAndEnds) {
  abi::Request request = shell("wc -c");
  request.mutable_exec()->set_stdin_mode(abi::STDIN_PIPE);
  Call exec(agent_, request);
  const std::string block(abi::kChunkBytes, 'x');
  for (int i = 0; i < 64; i++) ASSERT_TRUE(exec.send_data(block, false));
  ASSERT_TRUE(exec.send_data("end", true));
  EXPECT_EQ(exec.finish().out, std::to_string(64 * abi::kChunkBytes + 3) + "\n");
}

TEST_F(Exec, WithoutStdinTheCommandReadsNothing) { EXPECT_EQ(call(agent_, shell("cat; echo end")).out, "end\n"); }

TEST_F(Exec, BackgroundProcessDoesNotHoldTheResult) {
  const auto begin = MonotonicClock::now();
  const Call::Outcome o = call(agent_, shell("sleep 60 & echo $!"));
  EXPECT_EQ(o.result.exit().code(), 0u);
  EXPECT_LT(MonotonicClock::now() - begin, 5s);
  ::kill(std::stoi(o.out), SIGKILL);
}

TEST_F(Exec, DaemonThatFloodsTheOldPipeDoesNotHoldTheResult) {
  const Call::Outcome o = call(agent_, shell("yes & echo $! >&2; exit 3"));
  ASSERT_TRUE(o.complete);
  EXPECT_EQ(o.result.exit().code(), 3u);
  ::kill(std::stoi(o.err), SIGKILL);
}

TEST_F(Exec, AllOutputArrivesBeforeTheExit) {
  const Call::Outcome o = call(agent_, shell("head -c 20000000 /dev/zero | tr '\\0' x; printf end >&2"));
  EXPECT_EQ(o.out.size(), 20'000'000u);
  EXPECT_EQ(o.err, "end");
}

TEST_F(Exec, TimeoutKillsTheWholeGroup) {
  abi::Request request = shell("trap '' TERM; (trap '' TERM; echo $BASHPID; sleep 600) & wait");
  request.mutable_exec()->set_timeout_ms(300);
  const auto begin = MonotonicClock::now();
  const Call::Outcome o = call(agent_, request);
  ASSERT_TRUE(o.complete);
  EXPECT_TRUE(o.result.exit().timed_out());
  EXPECT_EQ(o.result.exit().signal(), static_cast<uint32_t>(SIGKILL));
  EXPECT_GE(MonotonicClock::now() - begin, 2300ms);
  EXPECT_LT(MonotonicClock::now() - begin, 5s);
  EXPECT_TRUE(gone_within(std::stoi(o.out), 1s));
}

TEST_F(Exec, TimeoutGivesAPoliteCommandTheChanceToEnd) {
  abi::Request request = shell("trap 'echo bye; exit 9' TERM; while :; do sleep 0.05; done");
  request.mutable_exec()->set_timeout_ms(300);
  const Call::Outcome o = call(agent_, request);
  EXPECT_EQ(o.out, "bye\n");
  EXPECT_TRUE(o.result.exit().timed_out());
  EXPECT_EQ(o.result.exit().code(), 9u);
}

TEST_F(Exec, SignalOnTheConnectionReachesTheGroup) {
  Call exec(agent_, shell("echo ready; sleep 600"));
  while (std::optional<abi::Event> event = exec.next())
    if (event->has_output()) break;
  abi::Input input;
  input.set_signal(SIGINT);
  ASSERT_TRUE(exec.send(input));
  const Call::Outcome o = exec.finish();
  ASSERT_TRUE(o.complete);
  EXPECT_EQ(o.result.exit().signal(), static_cast<uint32_t>(SIGINT));
}

TEST_F(Exec, DetachAnswersAtOnceAndAttachFindsTheEnd) {
  abi::Request request = shell("echo one; sleep 0.3; echo two; exit 5");
  request.mutable_exec()->set_detach(true);
  const Call::Outcome started = call(agent_, request);
  ASSERT_TRUE(started.complete);
  EXPECT_FALSE(started.result.has_exit());
  abi::Request attach;
  attach.mutable_attach()->set_pid(started.pid);
  const Call::Outcome o = call(agent_, attach);
  EXPECT_EQ(o.out, "one\ntwo\n");
  EXPECT_EQ(o.result.exit().code(), 5u);
  EXPECT_EQ(call(agent_, attach).out, "one\ntwo\n");  // also afterwards
}

TEST_F(Exec, LostConnectionDoesNotEndTheCommandAndAttachReplays) {
  Call exec(agent_, shell("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done"));
  uint32_t pid = 0;
  while (std::optional<abi::Event> event = exec.next()) {
    if (event->has_started()) pid = event->started().pid();
    if (event->has_output()) break;
  }
  exec.hang_up();
  abi::Request attach;
  attach.mutable_attach()->set_pid(pid);
  EXPECT_EQ(call(agent_, attach).out, "1\n2\n3\n4\n5\n");
}

TEST_F(Exec, AttachFromAnOffsetSkipsWhatIsKnown) {
  const Call::Outcome first = call(agent_, shell("printf 0123456789; printf abcdef >&2"));
  abi::Request attach;
  attach.mutable_attach()->set_pid(first.pid);
  attach.mutable_attach()->set_stdout_offset(4);
  attach.mutable_attach()->set_stderr_offset(6);
  const Call::Outcome o = call(agent_, attach);
  EXPECT_EQ(o.out, "456789");
  EXPECT_EQ(o.err, "");
}

TEST_F(Exec, NobodyAttachedDropsTheOldestAndNeverBlocks) {
  abi::Request request = shell("head -c 3000000 /dev/zero | tr '\\0' x; printf end");
  request.mutable_exec()->set_detach(true);
  request.mutable_exec()->set_output_buffer_bytes(64 << 10);
  const Call::Outcome started = call(agent_, request);
  std::this_thread::sleep_for(1s);
  abi::Request attach;
  attach.mutable_attach()->set_pid(started.pid);
  Call follow(agent_, attach);
  uint64_t first_offset = 0;
  std::string kept;
  while (std::optional<abi::Event> event = follow.next()) {
    if (event->has_output() && kept.empty()) first_offset = event->output().offset();
    if (event->has_output()) kept += event->output().bytes();
    if (event->has_result()) break;
  }
  EXPECT_GT(first_offset, 2'800'000u);
  EXPECT_LE(kept.size(), 200u << 10);
  EXPECT_EQ(first_offset + kept.size(), 3'000'003u);
  EXPECT_TRUE(kept.ends_with("end"));
}

TEST_F(Exec, SlowReaderHoldsBackTheCommand) {
  const std::string counter = agent_.dir() + "/written";
  Call exec(agent_, shell("for i in $(seq 300); do head -c 10000 /dev/zero; echo $i > " + counter + "; done"));
  std::this_thread::sleep_for(1500ms);
  EXPECT_LT(std::stoi(call(agent_, shell("cat " + counter)).out), 150);  // ring, pipe and socket buffers
  EXPECT_LT(agent_.peak_memory_bytes(), (40u << 20) + kSanitizerBytes);
  const Call::Outcome o = exec.finish();
  EXPECT_EQ(o.out.size(), 3'000'000u);
}

TEST_F(Exec, PtyIsATerminalOfTheAskedSize) {
  abi::Request request = shell("tty >/dev/null && stty size; echo $TERM");
  request.mutable_exec()->mutable_pty()->set_rows(33);
  request.mutable_exec()->mutable_pty()->set_cols(99);
  const Call::Outcome o = call(agent_, request);
  EXPECT_EQ(o.out, "33 99\r\nxterm-256color\r\n");
}

TEST_F(Exec, PtyTakesInputResizeAndEndOfFile) {
  abi::Request request = shell("stty -echo; echo go; read line; echo got $line; stty size; cat; echo end");
  request.mutable_exec()->mutable_pty()->set_rows(24);
  request.mutable_exec()->mutable_pty()->set_cols(80);
  Call exec(agent_, request);
  while (std::optional<abi::Event> event = exec.next())
    if (event->has_output()) break;
  abi::Input resize;
  resize.mutable_resize()->set_rows(50);
  resize.mutable_resize()->set_cols(132);
  ASSERT_TRUE(exec.send(resize));
  ASSERT_TRUE(exec.send_data("hello\n", false));
  std::this_thread::sleep_for(200ms);
  ASSERT_TRUE(exec.send_data("", true));
  EXPECT_EQ(exec.finish().out, "got hello\r\n50 132\r\nend\r\n");
}

TEST_F(Exec, PtyControlCInterrupts) {
  abi::Request request = shell("echo ready; sleep 600");
  request.mutable_exec()->mutable_pty()->set_rows(24);
  request.mutable_exec()->mutable_pty()->set_cols(80);
  Call exec(agent_, request);
  while (std::optional<abi::Event> event = exec.next())
    if (event->has_output()) break;
  ASSERT_TRUE(exec.send_data("\x03", false));
  const Call::Outcome o = exec.finish();
  ASSERT_TRUE(o.complete);
  EXPECT_TRUE(o.result.exit().signal() == SIGINT || o.result.exit().code() == 130);
}

TEST_F(Exec, OtherConnectionsWriteSignalAndList) {
  abi::Request request = shell("cat; exit 4");
  request.mutable_exec()->set_stdin_mode(abi::STDIN_PIPE);
  request.mutable_exec()->set_tag("reader");
  Call exec(agent_, request);
  const uint32_t pid = exec.next()->started().pid();

  abi::Request write;
  write.mutable_write_stdin()->set_pid(pid);
  write.mutable_write_stdin()->set_bytes("from afar");
  EXPECT_FALSE(call(agent_, write).result.has_error());
  abi::Request list;
  list.mutable_processes();
  const abi::ProcessInfo info = call(agent_, list).result.processes().processes(0);
  EXPECT_EQ(info.pid(), pid);
  EXPECT_EQ(info.tag(), "reader");
  EXPECT_TRUE(info.running());
  EXPECT_EQ(info.attached(), 1u);
  write.mutable_write_stdin()->clear_bytes();
  write.mutable_write_stdin()->set_eof(true);
  EXPECT_FALSE(call(agent_, write).result.has_error());
  const Call::Outcome o = exec.finish();
  EXPECT_EQ(o.out, "from afar");
  EXPECT_EQ(o.result.exit().code(), 4u);
  EXPECT_EQ(call(agent_, write).result.error().code(), abi::ERROR_CONFLICT);
  abi::Request signal;
  signal.mutable_signal()->set_pid(pid);
  signal.mutable_signal()->set_signal(SIGTERM);
  EXPECT_EQ(call(agent_, signal).result.error().code(), abi::ERROR_CONFLICT);
  signal.mutable_signal()->set_pid(1);
  EXPECT_EQ(call(agent_, signal).result.error().code(), abi::ERROR_NOT_FOUND);
}

TEST_F(Exec, WithoutADescriptorNewConnectionsWaitAndTheAgentDoesNotSpin) {
  const size_t open = agent_.open_descriptors();
  Call before(agent_);
  while (agent_.open_descriptors() == open) std::this_thread::sleep_for(Milliseconds(1));
  agent_.limit_descriptors();
  Call waits(agent_, shell("echo served"));
  std::this_thread::sleep_for(Milliseconds(50));
  const Milliseconds used = agent_.cpu_time();
  std::this_thread::sleep_for(Milliseconds(500));
  EXPECT_LT(agent_.cpu_time() - used, Milliseconds(50));
  EXPECT_EQ(agent_.open_descriptors(), open + 1) << "it has room, so this tests nothing";
  agent_.lift_limit_of_descriptors();
  const Call::Outcome served = waits.finish();
  EXPECT_EQ(served.out, "served\n") << served.result.error().message();
}

TEST_F(Exec, ManyRoundsLeaveNoDescriptorAndNoZombie) {
  for (int i = 0; i < 20; i++) (void)call(agent_, shell("true"));
  const size_t before = agent_.open_descriptors();
  for (int i = 0; i < 1500; i++) {
    abi::Request request;
    request.mutable_exec()->add_argv("/bin/true");
    ASSERT_TRUE(call(agent_, request).complete);
  }
  abi::Request pty = shell("exit 3");
  pty.mutable_exec()->mutable_pty()->set_rows(5);
  for (int i = 0; i < 200; i++) ASSERT_EQ(call(agent_, pty).result.exit().code(), 3u);
  for (int i = 0; i < 300; i++) Call(agent_, shell("true")).hang_up();
  const Deadline patience = deadline_after(20s);
  while ((agent_.children() != 0 || agent_.open_descriptors() > before + 2) && time_left(patience).count() > 0)
    std::this_thread::sleep_for(5ms);
  EXPECT_LE(agent_.open_descriptors(), before + 2);
  EXPECT_EQ(agent_.children(), 0u);
  EXPECT_LT(agent_.peak_memory_bytes(), (48u << 20) + kSanitizerBytes);
}

}  // namespace
}  // namespace ramet::guest
