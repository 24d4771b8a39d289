// Whoever asks for blocks is taken for hostile: what is no ask ends the talk, and reaches no block that is not there.
#include "commit/disk_asks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "base/file.h"

namespace ramet::commit {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBlocks = 1000;

class DiskAsks : public ::testing::Test {
 protected:
  // Each block is filled with the lower byte of its number.
  static Status read(image::BlockRange range, std::span<std::byte> out) {
    for (uint64_t i = 0; i < range.count; i++)
      std::ranges::fill(out.subspan(i * image::kBlockBytes, image::kBlockBytes), static_cast<std::byte>(range.first + i));
    return {};
  }
  // What comes of numbers and text that somebody sends and does not wait for.
  Result<std::optional<Error>> answer(const std::vector<uint64_t>& numbers, std::string_view text = {}) {
    EXPECT_TRUE(write_all(pair_.b.get(), std::as_bytes(std::span(numbers))));
    EXPECT_TRUE(write_all(pair_.b.get(), as_bytes(text)));
    EXPECT_EQ(::shutdown(pair_.b.get(), SHUT_WR), 0);
    return answer_asks(pair_.a.get(), kBlocks, read);
  }

  SocketPair pair_ = make_socket_pair(SOCK_STREAM).value();
};

TEST_F(DiskAsks, BlocksComeAsAskedFor) {
  std::thread answering([this] { EXPECT_TRUE(answer_asks(pair_.a.get(), kBlocks, read)); });
  std::vector<std::byte> bytes(2 * image::kBlockBytes);
  const iovec to{bytes.data(), bytes.size()};
  const AskedSource source(pair_.b.get(), kBlocks);
  EXPECT_TRUE(source.read({7, 2}, {&to, 1}, image::Wait::kAllowed));
  EXPECT_EQ(bytes.front(), std::byte{7});
  EXPECT_EQ(bytes.back(), std::byte{8});
  EXPECT_EQ(source.read({kBlocks - 1, 2}, {&to, 1}, image::Wait::kAllowed).error().kind(), ErrorKind::kInvalid);
  ::shutdown(pair_.b.get(), SHUT_WR);
  answering.join();
}

TEST_F(DiskAsks, WhatIsNotOnTheDiskEndsTheTalk) {
  EXPECT_EQ(answer({kBlocks - 1, 2}).error().message(), "an ask for 2 blocks at 999");
}
TEST_F(DiskAsks, ASumThatWrapsEndsTheTalk) { EXPECT_EQ(answer({UINT64_MAX - 1, 2}).error().kind(), ErrorKind::kCorrupt); }
TEST_F(DiskAsks, TooMuchAtOnceEndsTheTalk) { EXPECT_EQ(answer({0, kMostAskedBlocks + 1}).error().kind(), ErrorKind::kCorrupt); }
TEST_F(DiskAsks, NothingAtAllEndsTheTalk) { EXPECT_EQ(answer({0, 0}).error().kind(), ErrorKind::kCorrupt); }
TEST_F(DiskAsks, HalfAnAskEndsTheTalk) { EXPECT_EQ(answer({0}).error().message(), "half an ask for blocks"); }

TEST_F(DiskAsks, ARefusalIsASentenceAndAHint) {
  const Error refusal = answer({UINT64_MAX, 11}, "wh\033y\ndo so.").value().value();
  EXPECT_EQ(refusal.message(), "wh\\x1by");
  EXPECT_EQ(refusal.hint(), "do so.");
}
TEST_F(DiskAsks, AnEndlessRefusalIsNone) {
  EXPECT_THAT(answer({UINT64_MAX, 1ull << 40}).error().message(), HasSubstr("a refusal of 1099511627776 bytes"));
}
TEST_F(DiskAsks, ARefusalThatIsCutIsNone) { EXPECT_FALSE(answer({UINT64_MAX, 100}, "why")); }

TEST_F(DiskAsks, AnErrorOfTheDiskEndsTheTalkWithoutAnAnswer) {
  const std::vector<uint64_t> ask{1, 1};
  EXPECT_TRUE(write_all(pair_.b.get(), std::as_bytes(std::span(ask))));
  const auto fails = [](image::BlockRange, std::span<std::byte>) { return Status(fail(ErrorKind::kIo, "lost")); };
  EXPECT_EQ(answer_asks(pair_.a.get(), kBlocks, fails).error().kind(), ErrorKind::kIo);
}

}  // namespace
}  // namespace ramet::commit
