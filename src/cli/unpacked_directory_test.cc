// Tars that lead elsewhere, and how a directory comes to be. What is kept of files: apps/ramet-store/test_files.py.
#include "cli/unpacked_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/file.h"

namespace ramet::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class UnpackTest : public ::testing::Test {
 protected:
  UnpackTest() {
    std::string pattern = fs::temp_directory_path() / "ramet-unpack-XXXXXX";
    place_ = ::mkdtemp(pattern.data());
  }
  ~UnpackTest() override { fs::remove_all(place_); }

  // In pieces that respect no border.
  Result<Unpacked> unpack(std::string_view tar) {
    return unpack_tar(
        [tar](std::span<std::byte> into) mutable -> Result<size_t> {
          const size_t n = std::min<size_t>({into.size(), tar.size(), 777});
          std::memcpy(into.data(), tar.data(), n);
          tar.remove_prefix(n);
          return n;
        },
        place_ + "/out/");
  }
  // Without the fuzz target's first byte.
  static std::string sample(const std::string& name) {
    return read_file(std::string(RAMET_SOURCE_DIR) + "/fuzz/corpus/archive_fuzz/" + name).value().substr(1);
  }
  size_t names() const { return static_cast<size_t>(std::distance(fs::directory_iterator(place_), {})); }

  std::string place_;
};

TEST_F(UnpackTest, MakesADirectoryAndComesBack) {
  const fs::path before = fs::current_path();
  const Unpacked unpacked = unpack(sample("good")).value();
  EXPECT_EQ(unpacked.files, 5u);
  EXPECT_EQ(read_file(place_ + "/out/a/hard").value(), "hello");
  EXPECT_EQ(fs::read_symlink(place_ + "/out/a/link"), "file");
  EXPECT_TRUE(fs::exists(place_ + "/out/täglich"));
  EXPECT_EQ(fs::current_path(), before);
  EXPECT_EQ(names(), 1u);
  EXPECT_EQ(unpack(sample("good")).error().kind(), ErrorKind::kExists);
}

class HostileTar : public UnpackTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(HostileTar, IsRefusedAndLeavesNothing) {
  const fs::path before = fs::current_path();
  EXPECT_FALSE(unpack(sample(GetParam())));
  EXPECT_EQ(names(), 0u);
  EXPECT_EQ(fs::current_path(), before);
}
INSTANTIATE_TEST_SUITE_P(Of, HostileTar,
                         ::testing::Values("dot-dot", "absolute", "through-symlink", "through-symlink-up", "through-file",
                                           "hard-link-outside", "hard-link-absolute", "hard-link-to-nothing",
                                           "hard-link-through-symlink", "cut", "no-tar", "good-gzip", "good-xz"));

TEST_F(UnpackTest, SaysWhoIsRefused) {
  EXPECT_THAT(unpack(sample("dot-dot")).error().message(), HasSubstr("a/../../etc/passwd"));
  EXPECT_EQ(unpack(sample("dot-dot")).error().kind(), ErrorKind::kInvalid);
}

TEST_F(UnpackTest, ASenderThatGoesAwayLeavesNothing) {
  const std::string tar = sample("good");
  size_t sent = 0;
  const auto read = [&](std::span<std::byte> into) -> Result<size_t> {
    if (sent == tar.size()) return fail(ErrorKind::kUnavailable, "cut");
    const size_t n = std::min(into.size(), tar.size() - sent);
    std::memcpy(into.data(), tar.data() + sent, n);
    sent += n;
    return n;
  };
  EXPECT_EQ(unpack_tar(read, place_ + "/out").error().kind(), ErrorKind::kUnavailable);
  EXPECT_EQ(names(), 0u);
}

}  // namespace
}  // namespace ramet::cli
