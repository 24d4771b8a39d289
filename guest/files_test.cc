// Files, ports and hostile frames, driven through the real agent program.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "testing/agent_client.h"

namespace ramet::guest {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(agent_.ready()); }
  std::string path(const std::string& name) const { return agent_.dir() + "/" + name; }

  Call::Outcome write(const std::string& name, std::string_view contents, uint32_t mode = 0) {
    abi::Request request;
    request.mutable_write()->set_path(path(name));
    request.mutable_write()->set_permissions(mode);
    Call call(agent_, request);
    call.send_data(contents, true);
    return call.finish();
  }
  Call::Outcome read(const std::string& name, uint64_t offset = 0, uint64_t length = 0) {
    abi::Request request;
    request.mutable_read()->set_path(path(name));
    request.mutable_read()->set_offset(offset);
    request.mutable_read()->set_length(length);
    return call(agent_, request);
  }
  // Until no worker is left: they end on their own after a connection was dropped.
  bool workers_end() {
    for (int i = 0; i < 200 && agent_.children() > 0; i++) std::this_thread::sleep_for(10ms);
    return agent_.children() == 0;
  }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(agent_.dir()), fs::directory_iterator{}));
  }

  TestAgent agent_;
};

TEST_F(Files, WriteThenReadBack) {
  const Call::Outcome written = write("a", "hello", 0640);
  ASSERT_FALSE(written.result.has_error()) << written.result.error().message();
  EXPECT_EQ(written.result.file().size_bytes(), 5u);
  EXPECT_EQ(written.result.file().mode(), 0640u);
  const Call::Outcome o = read("a");
  EXPECT_EQ(o.data, "hello");
  EXPECT_EQ(o.result.file().type(), abi::FILE_REGULAR);
}

TEST_F(Files, ReadsARange) {
  write("a", "0123456789");
  EXPECT_EQ(read("a", 3, 4).data, "3456");
  EXPECT_EQ(read("a", 8, 100).data, "89");
  EXPECT_EQ(read("a", 100).data, "");
}

TEST_F(Files, EmptyFileHasAnEofFrame) {
  write("empty", "");
  const Call::Outcome o = read("empty");
  EXPECT_TRUE(o.complete);
  EXPECT_FALSE(o.result.has_error());
}

TEST_F(Files, OneGibibyteInAndOutWithBoundedMemory) {
  constexpr uint64_t kSize = 1ull << 30;
  abi::Request request;
  request.mutable_write()->set_path(path("big"));
  Call write_call(agent_, request);
  std::string chunk(abi::kChunkBytes, '\0');
  uint64_t sum = 0;
  for (uint64_t at = 0; at < kSize; at += chunk.size()) {
    chunk[0] = static_cast<char>(at >> 16);
    chunk[1] = static_cast<char>(at >> 24);
    sum = sum * 31 + static_cast<unsigned char>(chunk[0]) + static_cast<unsigned char>(chunk[1]);
    ASSERT_TRUE(write_call.send_data(chunk, at + chunk.size() == kSize));
    if (at == kSize / 2) {
      EXPECT_LT(agent_.peak_memory_of_children_bytes(), (32u << 20) + kSanitizerBytes);
    }
  }
  EXPECT_EQ(write_call.finish().result.file().size_bytes(), kSize);

  request.Clear();
  request.mutable_read()->set_path(path("big"));
  Call read_call(agent_, request);
  uint64_t got = 0, got_sum = 0;
  while (std::optional<abi::Event> event = read_call.next()) {
    if (event->has_result()) break;
    const std::string& bytes = event->data().bytes();
    got += bytes.size();
    if (!bytes.empty()) got_sum = got_sum * 31 + static_cast<unsigned char>(bytes[0]) + static_cast<unsigned char>(bytes[1]);
  }
  EXPECT_EQ(got, kSize);
  EXPECT_EQ(got_sum, sum);
  EXPECT_LT(agent_.peak_memory_bytes(), (32u << 20) + kSanitizerBytes);
}

TEST_F(Files, ReplacingKeepsTheModeAndIsAtomic) {
  write("a", "old", 0755);
  abi::Request request;
  request.mutable_write()->set_path(path("a"));
  Call replace(agent_, request);
  ASSERT_TRUE(replace.send_data("new contents", false));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(read("a").data, "old");
  ASSERT_TRUE(replace.send_data("", true));
  EXPECT_EQ(replace.finish().result.file().mode(), 0755u);
  EXPECT_EQ(read("a").data, "new contents");
}

TEST_F(Files, LostConnectionLeavesTheOldFileAndNoTemporary) {
  write("a", "old");
  const size_t before = entries();
  abi::Request request;
  request.mutable_write()->set_path(path("a"));
  Call replace(agent_, request);
  ASSERT_TRUE(replace.send_data("half of it", false));
  std::this_thread::sleep_for(50ms);
  replace.hang_up();
  ASSERT_TRUE(workers_end());
  EXPECT_EQ(read("a").data, "old");
  EXPECT_EQ(entries(), before);
}

TEST_F(Files, ReplacingThroughALinkReplacesItsTarget) {
  write("target", "old");
  fs::create_symlink("target", path("link"));
  write("link", "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read("target").data, "new");
}

TEST_F(Files, WriteAtAndAppend) {
  write("a", "0123456789");
  abi::Request request;
  request.mutable_write()->set_path(path("a"));
  request.mutable_write()->set_mode(abi::WRITE_AT);
  request.mutable_write()->set_offset(4);
  Call at(agent_, request);
  at.send_data("x", false);
  at.send_data("y", true);
  EXPECT_FALSE(at.finish().result.has_error());
  request.mutable_write()->set_mode(abi::WRITE_APPEND);
  Call append(agent_, request);
  append.send_data("!", true);
  EXPECT_FALSE(append.finish().result.has_error());
  EXPECT_EQ(read("a").data, "0123xy6789!");
}

TEST_F(Files, CreatesParentsWhenAsked) {
  abi::Request request;
  request.mutable_write()->set_path(path("x/y/z"));
  Call without(agent_, request);
  without.send_data("v", true);
  EXPECT_EQ(without.finish().result.error().code(), abi::ERROR_NOT_FOUND);
  request.mutable_write()->set_create_parents(true);
  Call with(agent_, request);
  with.send_data("v", true);
  EXPECT_FALSE(with.finish().result.has_error());
  EXPECT_EQ(read("x/y/z").data, "v");
}

TEST_F(Files, ActsAsTheNamedUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  write("secret", "s", 0600);
  abi::Request request;
  request.mutable_read()->set_path(path("secret"));
  request.mutable_read()->set_user("nobody");
  ::chmod(agent_.dir().c_str(), 0777);
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_DENIED);
  request.mutable_write()->set_path(path("theirs"));
  request.mutable_write()->set_user("nobody");
  Call theirs(agent_, request);
  theirs.send_data("t", true);
  EXPECT_EQ(theirs.finish().result.file().user(), "nobody");
}

TEST_F(Files, ListsToADepth) {
  fs::create_directories(path("d/e/f"));
  write("d/one", "1");
  abi::Request request;
  request.mutable_list()->set_path(path("d"));
  EXPECT_EQ(call(agent_, request).files.size(), 2u);
  request.mutable_list()->set_depth(2);
  const Call::Outcome o = call(agent_, request);
  ASSERT_EQ(o.files.size(), 3u);
  std::vector<std::string> names;
  for (const abi::FileInfo& f : o.files) names.push_back(f.path());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"e", "e/f", "one"}));
}

TEST_F(Files, ListsAHugeDirectory) {
  fs::create_directory(path("many"));
  for (int i = 0; i < 20'000; i++) ::mknod(path("many/" + std::to_string(i)).c_str(), S_IFREG | 0644, 0);
  abi::Request request;
  request.mutable_list()->set_path(path("many"));
  EXPECT_EQ(call(agent_, request).files.size(), 20'000u);
}

TEST_F(Files, StatSeesLinksAndTargets) {
  write("a", "123");
  fs::create_symlink("a", path("l"));
  abi::Request request;
  request.mutable_stat()->set_path(path("l"));
  abi::FileInfo info = call(agent_, request).result.file();
  EXPECT_EQ(info.type(), abi::FILE_SYMLINK);
  EXPECT_EQ(info.symlink_target(), "a");
  request.mutable_stat()->set_follow(true);
  EXPECT_EQ(call(agent_, request).result.file().size_bytes(), 3u);
}

TEST_F(Files, MakesMovesAndRemoves) {
  abi::Request make;
  make.mutable_mkdir()->set_path(path("p/q"));
  EXPECT_EQ(call(agent_, make).result.error().code(), abi::ERROR_NOT_FOUND);
  make.mutable_mkdir()->set_parents(true);
  make.mutable_mkdir()->set_permissions(0700);
  EXPECT_FALSE(call(agent_, make).result.has_error());
  EXPECT_FALSE(call(agent_, make).result.has_error());
  make.mutable_mkdir()->set_parents(false);
  EXPECT_EQ(call(agent_, make).result.error().code(), abi::ERROR_EXISTS);

  write("from", "f");
  write("to", "t");
  abi::Request move;
  move.mutable_move()->set_from(path("from"));
  move.mutable_move()->set_to(path("to"));
  move.mutable_move()->set_no_replace(true);
  EXPECT_EQ(call(agent_, move).result.error().code(), abi::ERROR_EXISTS);
  move.mutable_move()->set_no_replace(false);
  EXPECT_FALSE(call(agent_, move).result.has_error());
  EXPECT_EQ(read("to").data, "f");

  abi::Request remove;
  remove.mutable_remove()->set_path(path("p"));
  EXPECT_EQ(call(agent_, remove).result.error().code(), abi::ERROR_CONFLICT);
  remove.mutable_remove()->set_recursive(true);
  EXPECT_FALSE(call(agent_, remove).result.has_error());
  EXPECT_FALSE(fs::exists(path("p")));
  remove.mutable_remove()->set_path("///");
  EXPECT_EQ(call(agent_, remove).result.error().code(), abi::ERROR_INVALID);
}

TEST_F(Files, RemovesAVeryDeepTreeAndLeavesLinkTargets) {
  write("outside", "kept");
  ASSERT_EQ(::system(("cd " + agent_.dir() + " && mkdir deep && cd deep && for i in $(seq 600); do mkdir d; ln -s " +
                      path("outside") + " l; cd -P d; done")
                         .c_str()),
            0);
  abi::Request remove;
  remove.mutable_remove()->set_path(path("deep"));
  remove.mutable_remove()->set_recursive(true);
  const Call::Outcome o = call(agent_, remove);
  EXPECT_FALSE(o.result.has_error()) << o.result.error().message();
  EXPECT_FALSE(fs::exists(path("deep")));
  EXPECT_EQ(read("outside").data, "kept");
}

TEST_F(Files, BadPathsAndKindsAreErrors) {
  EXPECT_EQ(read("missing").result.error().code(), abi::ERROR_NOT_FOUND);
  abi::Request request;
  request.mutable_read()->set_path("relative");
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_INVALID);
  request.mutable_read()->set_path(agent_.dir());
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_CONFLICT);
  request.mutable_read()->set_path(std::string("/etc\0/passwd", 12));
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_INVALID);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read("pipe").data, "");  // does not hang
}

TEST_F(Files, SlowHostDoesNotStopTheAgent) {
  abi::Request request;
  request.mutable_read()->set_path("/dev/zero");
  Call endless(agent_, request);
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(call(agent_, shell("echo alive")).out, "alive\n");
  endless.hang_up();
  EXPECT_TRUE(workers_end());
}

TEST_F(Files, PortCarriesBytesBothWays) {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  std::thread echo([&] {
    const UniqueFd s(::accept(listener.get(), nullptr, nullptr));
    char buffer[4096];
    for (ssize_t n; (n = ::read(s.get(), buffer, sizeof buffer)) > 0;)
      (void)write_all(s.get(), as_bytes({buffer, static_cast<size_t>(n)})).has_value();
  });
  abi::Request request;
  request.mutable_port_connect()->set_port(ntohs(address.sin_port));
  Call port(agent_, request);
  std::thread sender([&] {
    for (int i = 0; i < 100; i++) port.send_data(std::string(10'000, static_cast<char>('a' + i % 26)), i == 99);
  });
  const Call::Outcome o = port.finish();
  sender.join();
  echo.join();
  EXPECT_TRUE(o.complete);
  EXPECT_FALSE(o.result.has_error()) << o.result.error().message();
  EXPECT_EQ(o.data.size(), 1'000'000u);
  listener.reset();
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_NOT_FOUND);
}

TEST_F(Files, HostileFramesEndOnlyTheirConnection) {
  Call too_long(agent_);
  char header[4];
  abi::put_frame_header(header, abi::kMaxFrameBytes + 1);
  too_long.send_raw({header, 4});
  EXPECT_FALSE(too_long.next());

  Call garbage(agent_);
  abi::put_frame_header(header, 5);
  garbage.send_raw({header, 4});
  garbage.send_raw("\xff\xff\xff\xff\xff");
  EXPECT_EQ(garbage.finish().result.error().code(), abi::ERROR_INVALID);

  Call empty(agent_);
  abi::put_frame_header(header, 0);
  empty.send_raw({header, 4});
  EXPECT_EQ(empty.finish().result.error().code(), abi::ERROR_UNSUPPORTED);

  Call truncated(agent_);
  abi::put_frame_header(header, 1000);
  truncated.send_raw({header, 4});
  truncated.send_raw("abc");
  truncated.hang_up();

  abi::Request request;
  request.mutable_write()->set_path(path("a"));
  Call bad_input(agent_, request);
  abi::put_frame_header(header, 3);
  bad_input.send_raw({header, 4});
  bad_input.send_raw("\xff\xff\xff");
  EXPECT_EQ(bad_input.finish().result.error().code(), abi::ERROR_INVALID);
  EXPECT_FALSE(fs::exists(path("a")));

  abi::Request ping;
  ping.mutable_ping();
  EXPECT_TRUE(call(agent_, ping).result.has_pong());
}

TEST_F(Files, MoreConnectionsThanAllowedWaitTheirTurn) {
  std::vector<std::unique_ptr<Call>> idle;
  for (int i = 0; i < 600; i++) idle.push_back(std::make_unique<Call>(agent_));
  abi::Request ping;
  ping.mutable_ping();
  Call late(agent_, ping);
  EXPECT_FALSE(late.next(Milliseconds(200)));
  idle.clear();
  EXPECT_TRUE(late.finish().result.has_pong());
}

TEST_F(Files, ManyRoundsLeaveNothing) {
  write("a", "x");
  const size_t before = agent_.open_descriptors();
  for (int i = 0; i < 1000; i++) ASSERT_EQ(read("a").data, "x");
  ASSERT_TRUE(workers_end());
  EXPECT_LE(agent_.open_descriptors(), before);
}

TEST_F(Files, WhatNeedsAMachineIsRefusedWithoutOne) {
  abi::Request request;
  request.mutable_identify()->set_entropy(std::string(32, 'e'));
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_UNSUPPORTED);
  request.mutable_freeze();
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_UNSUPPORTED);
  request.mutable_freeze_fs();
  EXPECT_EQ(call(agent_, request).result.error().code(), abi::ERROR_UNSUPPORTED);
  request.mutable_metrics();
  EXPECT_GT(call(agent_, request).result.metrics().memory_total_bytes(), 0u);
  request.mutable_sync_fs();
  EXPECT_FALSE(call(agent_, request).result.has_error());
}

}  // namespace
}  // namespace ramet::guest
