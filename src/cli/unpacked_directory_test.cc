// Tars that lead elsewhere, and how a directory comes to be. What is kept of files: apps/ramet-store/test_files.py.
#include "cli/unpacked_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/testing/small_disk.h"
#include "cli/work_directory.h"

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
  Result<Unpacked> unpack(std::string_view tar) { return unpack(tar, place_ + "/out/"); }
  static Result<Unpacked> unpack(std::string_view tar, const std::string& directory) {
    return unpack_tar(
        [tar](std::span<std::byte> into) mutable -> Result<size_t> {
          const size_t n = std::min<size_t>({into.size(), tar.size(), 777});
          std::memcpy(into.data(), tar.data(), n);
          tar.remove_prefix(n);
          return n;
        },
        directory);
  }
  // What a shell makes below place_ + "/from".
  std::string tar_of(const std::string& commands) const {
    const std::string from = place_ + "/from";
    const std::string all = "mkdir " + from + " && cd " + from + " && " + commands + " && tar -cf ../tar .; cd ..; rm -r from";
    EXPECT_EQ(std::system(all.c_str()), 0);
    const std::string tar = read_file(place_ + "/tar").value();
    fs::remove(place_ + "/tar");
    return tar;
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

TEST_F(UnpackTest, AFullDiskIsNamedAndLeavesNothing) {
  const std::string tar =
      tar_of("mkdir -p a/b && head -c 9000 /dev/urandom > a/b/c && head -c 9000 /dev/urandom > d && ln -s d e");
  ramet::testing::on_a_small_disk(place_ + "/disk", 1u << 20, [&](ramet::testing::SmallDisk& disk) {
    ramet::testing::fail_at_every_write(
        disk,
        [&]() -> Status {
          const Result<Unpacked> unpacked = unpack(tar, disk.path() + "/out/");
          if (unpacked) return {};
          EXPECT_THAT(unpacked.error().message(), HasSubstr(disk.path() + "/out"));
          return tl::unexpected<Error>(unpacked.error());
        },
        [&] { EXPECT_TRUE(fs::is_empty(disk.path())); });
    EXPECT_EQ(fs::file_size(disk.path() + "/out/a/b/c"), 9000u);
  });
}

// Only root takes files out of a directory without the right to write.
TEST_F(UnpackTest, WhatIsClosedGoesAwayToo) {
  constexpr uid_t kNobody = 65534;
  constexpr size_t kWithinTheFile = 3 * 512 + 2;  // behind three headers
  const std::string tar = tar_of("mkdir closed && echo text > closed/file && chmod 500 closed").substr(0, kWithinTheFile);
  const uid_t owner = ::geteuid() == 0 ? kNobody : ::geteuid();
  ASSERT_EQ(::chown(place_.c_str(), owner, static_cast<gid_t>(-1)), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && (::setresgid(kNobody, kNobody, kNobody) < 0 || ::setresuid(kNobody, kNobody, kNobody) < 0))
      ::_exit(2);
    ::_exit(unpack(tar) ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(names(), 0u);
}

TEST_F(UnpackTest, WhatAKilledOneLeftGoesAwayWithTheNextOfThatName) {
  const pid_t child = ::fork();
  if (child == 0) {
    static_cast<void>(unpack_tar([](std::span<std::byte>) -> Result<size_t> { return ::raise(SIGKILL); }, place_ + "/out"));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(names(), 1u);
  ASSERT_TRUE(unpack(sample("good"), place_ + "/other"));
  EXPECT_EQ(names(), 2u) << "what may be of somebody else stays";
  ASSERT_TRUE(unpack(sample("good")));
  EXPECT_EQ(names(), 2u);
}

TEST_F(UnpackTest, WhoWorksAtTheSameTimeIsLeftAlone) {
  const WorkDirectory one = WorkDirectory::beside(place_ + "/out").value();
  const WorkDirectory two = WorkDirectory::beside(place_ + "/out").value();
  EXPECT_TRUE(fs::is_directory(one.path()));
  EXPECT_TRUE(fs::is_directory(two.path()));
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
