#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <filesystem>

#include "base/checked.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "base/file.h"
#include "base/half_replaced.h"
#include "base/mapped_region.h"
#include "base/result.h"
#include "base/socket.h"

namespace ramet {
namespace {

// The check value of the catalogue of CRCs, and that words and single bytes give the same.
TEST(Crc32c, IsTheKnownOne) {
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(crc32c("", 0), 0u);
  std::string text(100, '\0');
  for (size_t i = 0; i < text.size(); i++) text[i] = static_cast<char>(i * 37);
  for (size_t length = 0; length < 90; length++) {
    uint32_t bitwise = ~0u;
    for (size_t i = 0; i < length; i++) {
      bitwise ^= static_cast<unsigned char>(text[3 + i]);
      for (int bit = 0; bit < 8; bit++) bitwise = bitwise >> 1 ^ (bitwise & 1 ? 0x82f63b78u : 0u);
    }
    EXPECT_EQ(crc32c(text.data() + 3, length), ~bitwise) << length;
  }
}

TEST(Error, KindNamesAreReversible) {
  for (int k = 0; k <= static_cast<int>(ErrorKind::kInternal); k++)
    EXPECT_EQ(kind_from_name(kind_name(static_cast<ErrorKind>(k))), static_cast<ErrorKind>(k));
}

TEST(Error, ErrnoBecomesKindAndMessage) {
  const Result<UniqueFd> r = open_file("/does/not/exist", O_RDONLY);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(r.error().err(), ENOENT);
  EXPECT_NE(r.error().message().find("/does/not/exist"), std::string::npos);
}

TEST(Checked, RangesDoNotWrap) {
  EXPECT_TRUE(range_within(0, 10, 10));
  EXPECT_FALSE(range_within(1, 10, 10));
  EXPECT_FALSE(range_within(UINT64_MAX, 1, 10));
  EXPECT_FALSE(range_within(5, UINT64_MAX, 10));
  EXPECT_FALSE(align_up(UINT64_MAX, 4096).has_value());
  EXPECT_EQ(align_up(4097, 4096), 8192u);
  EXPECT_FALSE(checked_add<uint64_t>(UINT64_MAX, 1).has_value());
}

TEST(Endian, BytesAreLittleEndian) {
  const le32 v = 0x01020304u;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&v);
  EXPECT_EQ(bytes[0], 4);
  EXPECT_EQ(static_cast<uint32_t>(v), 0x01020304u);
}

TEST(File, ReplaceKeepsOldOrNew) {
  const std::string dir = std::filesystem::temp_directory_path() / ("ramet_base_" + std::to_string(::getpid()));
  ASSERT_TRUE(make_directories(dir + "/a/b"));
  ASSERT_TRUE(make_lasting_directories(dir + "/a/c//d/"));
  EXPECT_TRUE(open_file(dir + "/a/c/d", O_RDONLY | O_DIRECTORY));
  ASSERT_TRUE(make_lasting_directories(dir + "/a/c/d"));
  ASSERT_TRUE(replace_file(dir + "/a/b/f", "one"));
  ASSERT_TRUE(replace_file(dir + "/a/b/f", "two"));
  EXPECT_EQ(*read_file(dir + "/a/b/f"), "two");
  EXPECT_EQ(read_file(dir + "/a/b/f", 2).error().kind(), ErrorKind::kInvalid);
  std::filesystem::remove_all(dir);
}

TEST(File, WhatAKilledProcessHadHalfReplacedIsTakenAway) {
  const std::string dir = std::filesystem::temp_directory_path() / ("ramet-base-half-" + std::to_string(::getpid()));
  ASSERT_TRUE(make_directories(dir));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::string dead = dir + "/f.tmp." + std::to_string(child), living = dir + "/g.tmp." + std::to_string(::getpid());
  for (const std::string& path : {dead, living, dir + "/f", dir + "/f.tmp.", dir + "/f.tmp.12x"})
    ASSERT_TRUE(replace_file(path, "content"));
  remove_half_replaced(dir);
  EXPECT_FALSE(std::filesystem::exists(dead));
  for (const std::string& path : {living, dir + "/f", dir + "/f.tmp.", dir + "/f.tmp.12x"})
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
  remove_half_replaced(dir + "/none");
  std::filesystem::remove_all(dir);
}

TEST(Socket, MessageCarriesDescriptorsAndEof) {
  SocketPair pair = std::move(*make_socket_pair(SOCK_SEQPACKET));
  Pipe pipe = std::move(*make_pipe());
  const int fds[] = {pipe.write_end.get()};
  ASSERT_TRUE(send_message(pair.a.get(), as_bytes("hello"), fds, deadline_after(Milliseconds(1000))));
  Received got = std::move(*receive_message(pair.b.get(), 100, deadline_after(Milliseconds(1000))));
  EXPECT_EQ(got.bytes, "hello");
  ASSERT_EQ(got.fds.size(), 1u);
  ASSERT_TRUE(write_all(got.fds[0].get(), as_bytes("x")));
  std::byte one;
  EXPECT_TRUE(read_exact(pipe.read_end.get(), {&one, 1}));
  pair.a.reset();
  EXPECT_TRUE(receive_message(pair.b.get(), 100, deadline_after(Milliseconds(1000)))->eof);
}

TEST(Socket, MessageTakesRoomForItselfNotForTheLongest) {
  SocketPair pair = std::move(*make_socket_pair(SOCK_SEQPACKET));
  ASSERT_TRUE(send_message(pair.a.get(), as_bytes("hello"), {}, deadline_after(Milliseconds(1000))));
  const Received got = std::move(*receive_message(pair.b.get(), 64 << 10, deadline_after(Milliseconds(1000))));
  EXPECT_EQ(got.bytes, "hello");
  EXPECT_LT(got.bytes.capacity(), 4096u);
}

TEST(Socket, OverlongMessageIsAnErrorAndTimeoutIsKept) {
  SocketPair pair = std::move(*make_socket_pair(SOCK_SEQPACKET));
  ASSERT_TRUE(send_message(pair.a.get(), as_bytes("0123456789"), {}, deadline_after(Milliseconds(1000))));
  EXPECT_EQ(receive_message(pair.b.get(), 4, deadline_after(Milliseconds(1000))).error().kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(receive_message(pair.b.get(), 4, deadline_after(Milliseconds(20))).error().kind(), ErrorKind::kTimeout);
}

TEST(ChildProcess, ReportsExitAndMissingProgram) {
  ChildProcess child = std::move(*ChildProcess::spawn({.argv = {"/bin/sh", "-c", "exit 3"}}));
  const std::optional<int> status = child.wait(deadline_after(Milliseconds(5000)));
  ASSERT_TRUE(status);
  EXPECT_EQ(WEXITSTATUS(*status), 3);
  EXPECT_EQ(ChildProcess::spawn({.argv = {"/no/such/program"}}).error().kind(), ErrorKind::kNotFound);
}

TEST(ChildProcess, DestructorKills) {
  UniqueFd pidfd;
  {
    ChildProcess child = std::move(*ChildProcess::spawn({.argv = {"/bin/sleep", "1000"}}));
    pidfd = std::move(*open_pidfd(child.pid()));
  }
  EXPECT_TRUE(wait_for(pidfd.get(), POLLIN, deadline_after(Milliseconds(1000))));
}

}  // namespace
}  // namespace ramet
