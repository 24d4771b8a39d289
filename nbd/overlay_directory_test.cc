#include "overlay_directory.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "error_numbers.h"
#include "parameters.h"

namespace ramet::nbd {
namespace {

class Directory : public ::testing::Test {
 protected:
  Directory() {
    char name[] = "/tmp/ramet-nbd-XXXXXX";
    root = ::mkdtemp(name);
    path = root + "/overlay";
  }
  ~Directory() override { std::filesystem::remove_all(root); }
  std::string root, path;
};

TEST_F(Directory, BelongsToOneServerAtATime) {
  {
    const Result<OverlayDirectory> first = OverlayDirectory::open(path, "image a");
    ASSERT_TRUE(first);
    EXPECT_EQ(OverlayDirectory::open(path, "image a").error().kind(), ErrorKind::kConflict);
  }
  EXPECT_TRUE(OverlayDirectory::open(path, "image a"));
}

TEST_F(Directory, RefusesAnotherBaseAndSaysWhich) {
  ASSERT_TRUE(OverlayDirectory::open(path, "image a"));
  const Result<OverlayDirectory> other = OverlayDirectory::open(path, "image b");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().kind(), ErrorKind::kConflict);
  EXPECT_NE(other.error().message().find("'image a'"), std::string::npos) << other.error().message();
}

TEST_F(Directory, DoesNotGuessOverWhatAnOverlayLies) {
  ASSERT_TRUE(OverlayDirectory::open(path, "image a"));
  std::filesystem::remove(path + "/base");
  EXPECT_EQ(OverlayDirectory::open(path, "image a").error().kind(), ErrorKind::kCorrupt);
}

TEST(Parameters, OneBaseAndOnlyWhatIsKnown) {
  Parameters p;
  EXPECT_EQ(p.check().error().kind(), ErrorKind::kInvalid);
  EXPECT_TRUE(p.set("image", "debian"));
  EXPECT_EQ(p.check().error().kind(), ErrorKind::kInvalid);  // no socket
  EXPECT_TRUE(p.set("socket", "chunk.sock"));
  EXPECT_EQ(p.socket, std::filesystem::current_path().string() + "/chunk.sock");
  EXPECT_TRUE(p.check());
  EXPECT_TRUE(p.set("file", "x"));
  EXPECT_FALSE(p.check());
  EXPECT_FALSE(p.set("overlay", ""));
  EXPECT_FALSE(p.set("colour", "red"));
  EXPECT_FALSE(p.set("timeout", "-1"));
  EXPECT_FALSE(p.set("timeout", "5s"));
  EXPECT_FALSE(p.set("timeout", "99999999999"));
  EXPECT_TRUE(p.set("timeout", "5"));
  EXPECT_EQ(p.daemon_timeout, std::chrono::seconds(5));
}

TEST(ErrorNumbers, AClientCanTellAFullDiskFromABrokenOne) {
  EXPECT_EQ(error_number(ErrorKind::kNoSpace), ENOSPC);
  EXPECT_EQ(error_number(ErrorKind::kInvalid), EINVAL);
  EXPECT_EQ(error_number(ErrorKind::kPermission), EPERM);
  EXPECT_EQ(error_number(ErrorKind::kUnavailable), EIO);
  EXPECT_EQ(error_number(ErrorKind::kCorrupt), EIO);
}

}  // namespace
}  // namespace ramet::nbd
