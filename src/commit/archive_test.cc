// Foreign trees of files: what a good archive says is what the tree has; a hostile one is refused with the member's name and
// the reason. The archives are those of the fuzz target (fuzz/make_intake_corpus.py).
#include "commit/archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::commit {
namespace {

using ::testing::HasSubstr;
using Kind = FileTree::Kind;

const ImageLimits kSmall{.max_unpacked_bytes = 1 << 20, .max_metadata_bytes = 1 << 18, .max_files = 2000};

class ArchiveTest : public ::testing::Test {
 protected:
  Status read(const std::string& name, Whiteouts whiteouts = Whiteouts::kOrdinary) {
    const std::string path = std::string(RAMET_SOURCE_DIR) + "/fuzz/corpus/archive_fuzz/" + name;
    const UniqueFd file = open_file(path, O_RDONLY).value();
    // The first byte is the fuzz target's.
    return read_tar({file.get(), 1, file_size(file.get()).value() - 1}, whiteouts, tree_, spool_);
  }
  Status read_folder(const std::string& path) { return read_directory(path, tree_, spool_); }
  void expect_refused(const std::string& name, ErrorKind kind, const std::string& reason,
                      Whiteouts whiteouts = Whiteouts::kOrdinary) {
    const Status done = read(name, whiteouts);
    ASSERT_FALSE(done) << name << " was taken";
    EXPECT_EQ(done.error().kind(), kind) << done.error().to_string();
    EXPECT_THAT(done.error().message(), HasSubstr(reason));
  }
  const FileTree::Node& at(const std::string& path) { return tree_.node(tree_.find(path).value()); }
  std::string content(const std::string& path) {
    const SpoolRange range = at(path).content;
    std::string out(range.bytes, '\0');
    EXPECT_TRUE(pread_exact(spool_.fd(), std::as_writable_bytes(std::span(out)), range.offset));
    return out;
  }

  chunk::testing::TemporaryDirectory directory_;
  FileTree tree_{kSmall};
  Spool spool_{OutputFile::temporary(directory_.path).value(), kSmall};
};

TEST_F(ArchiveTest, AGoodArchiveIsWhatItSays) {
  ASSERT_TRUE(read("good"));
  EXPECT_EQ(at("a").kind, Kind::kDirectory);
  EXPECT_EQ(content("a/file"), "hello");
  EXPECT_EQ(at("a/link").target, "file");
  EXPECT_EQ(tree_.find("a/hard"), tree_.find("a/file"));
  EXPECT_THAT(at("täglich").attributes.xattrs, ::testing::ElementsAre(std::pair<std::string, std::string>("user.k", "v")));
  EXPECT_EQ(at("a/file").attributes.mtime_s, 1'700'000'000);
}

TEST_F(ArchiveTest, CompressionsAreRecognised) {
  ASSERT_TRUE(read("good-gzip"));
  ASSERT_TRUE(read("good-xz"));
  EXPECT_EQ(content("a/file"), "hello");
}

TEST_F(ArchiveTest, LongNamesOfGnuTarAreWhole) {
  ASSERT_TRUE(read("good-gnu"));
  EXPECT_EQ(content(std::string(200, 'n')), "long");
}

TEST_F(ArchiveTest, PathsDoNotLeaveTheTree) {
  expect_refused("dot-dot", ErrorKind::kInvalid, "'a/../../etc/passwd' leaves the tree by '..'");
  expect_refused("absolute", ErrorKind::kInvalid, "'/etc/passwd' is an absolute path");
  expect_refused("through-symlink", ErrorKind::kInvalid, "'etc/passwd' goes through the symbolic link 'etc'");
  expect_refused("through-symlink-up", ErrorKind::kInvalid, "'up/passwd' goes through the symbolic link 'up'");
  expect_refused("through-file", ErrorKind::kInvalid, "'f/g' goes through the file 'f'");
  expect_refused("whiteout-outside", ErrorKind::kInvalid, "leaves the tree by '..'", Whiteouts::kRemove);
}

TEST_F(ArchiveTest, HardLinksLeadToFilesOfTheTree) {
  expect_refused("hard-link-outside", ErrorKind::kInvalid, "'../../etc/shadow' leaves the tree");
  expect_refused("hard-link-absolute", ErrorKind::kInvalid, "'/etc/shadow' is an absolute path");
  expect_refused("hard-link-to-nothing", ErrorKind::kInvalid, "'l' is a hard link to 'etc/shadow', which is not in the tree");
  expect_refused("hard-link-to-directory", ErrorKind::kInvalid, "'l' is a hard link to 'd', which is a directory");
  expect_refused("hard-link-through-symlink", ErrorKind::kInvalid, "'e/shadow', which is not in the tree");
}

TEST_F(ArchiveTest, SpecialFilesAreRefused) {
  expect_refused("block-device", ErrorKind::kInvalid, "'dev/sda' is a block device");
  expect_refused("character-device", ErrorKind::kInvalid, "'dev/mem' is a character device");
  expect_refused("fifo", ErrorKind::kInvalid, "'pipe' is a FIFO");
}

TEST_F(ArchiveTest, GiantSizesAreRefusedBeforeAnythingIsUnpacked) {
  expect_refused("giant-size", ErrorKind::kInvalid, "'huge' has 1125899906842624 bytes; of the 1048576 that may be unpacked");
  expect_refused("giant-size-pax", ErrorKind::kInvalid, "'huge' has 1152921504606846976 bytes");
  expect_refused("sparse-giant", ErrorKind::kInvalid, "'huge' has 1152921504606846976 bytes");
}

TEST_F(ArchiveTest, BombsAreRefused) {
  expect_refused("bomb-gzip", ErrorKind::kInvalid, "'zeros' has 8388608 bytes");
  expect_refused("bomb-of-directories", ErrorKind::kInvalid, "is 301 levels deep, the limit is 256");
}

TEST_F(ArchiveTest, TooManyFilesAreRefused) {
  expect_refused("bomb-of-files", ErrorKind::kInvalid, "'f2000' is one file more than the limit of 2000");
}

TEST_F(ArchiveTest, LinksCountAsFiles) {
  expect_refused("bomb-of-links", ErrorKind::kInvalid, "'l1999' is one file more than the limit of 2000");
}

TEST_F(ArchiveTest, WhatIsPassedOverCounts) {
  const ImageLimits limits{.max_unpacked_bytes = 1 << 20, .max_files = 100};
  Spool spool(OutputFile::temporary(directory_.path).value(), limits);
  const UniqueFd file =
      open_file(std::string(RAMET_SOURCE_DIR) + "/fuzz/corpus/archive_fuzz/bomb-passed-over", O_RDONLY).value();
  const Status done = read_tar({file.get(), 1, file_size(file.get()).value() - 1}, Whiteouts::kRemove, tree_, spool);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message(), HasSubstr("'g' lies behind 1458176 bytes of archive, which is the limit"));
}

TEST_F(ArchiveTest, NamesAndAttributesHaveLimits) {
  expect_refused("name-too-long", ErrorKind::kInvalid, "has a name of 300 bytes, the limit is 255");
  expect_refused("xattrs-too-many", ErrorKind::kInvalid, "'f' has more extended attributes");
  expect_refused("empty-link", ErrorKind::kInvalid, "'l' is a symbolic link to 0 bytes");
  expect_refused("owner-negative", ErrorKind::kInvalid, "'f' has an owner that no 32-bit number can name");
  expect_refused("whiteout-of-nothing", ErrorKind::kInvalid, "takes away a file without a name", Whiteouts::kRemove);
  expect_refused("file-over-root", ErrorKind::kInvalid, "is the root");
}

TEST_F(ArchiveTest, DamageIsAnError) {
  expect_refused("cut", ErrorKind::kCorrupt, "");
  expect_refused("no-tar", ErrorKind::kCorrupt, "Unrecognized archive format");
}

TEST_F(ArchiveTest, LayersTakeAwayWhatLowerOnesBrought) {
  ASSERT_TRUE(tree_.add_file("a/gone", {}, {}));
  ASSERT_TRUE(tree_.add_file("a/kept", {}, {}));
  ASSERT_TRUE(tree_.add_file("b/old/deep", {}, {}));
  tree_.begin_layer();
  ASSERT_TRUE(tree_.add_file("b/early", {}, {}));
  ASSERT_TRUE(read("good-layer", Whiteouts::kRemove));
  EXPECT_FALSE(tree_.find("a/gone"));
  EXPECT_TRUE(tree_.find("a/kept"));
  EXPECT_FALSE(tree_.find("b/old"));
  EXPECT_TRUE(tree_.find("b/early"));  // of this layer
  EXPECT_EQ(content("b/new"), "1");
}

TEST_F(ArchiveTest, ADirectoryIsReadAsItIs) {
  const std::string root = directory_.path + "/root";
  std::filesystem::create_directories(root + "/a");
  std::ofstream(root + "/a/file") << "hello";
  std::filesystem::create_hard_link(root + "/a/file", root + "/hard");
  std::filesystem::create_symlink("/etc", root + "/link");
  ASSERT_EQ(::setxattr((root + "/a/file").c_str(), "user.k", "v", 1, 0), 0);
  const Status done = read_folder(root);
  ASSERT_TRUE(done) << done.error().to_string();
  EXPECT_EQ(content("a/file"), "hello");
  EXPECT_EQ(tree_.find("hard"), tree_.find("a/file"));
  EXPECT_EQ(at("link").target, "/etc");  // and nothing below it
  EXPECT_EQ(at("a/file").attributes.xattrs.size(), 1u);
  EXPECT_EQ(at("a/file").attributes.uid, ::getuid());
}

TEST_F(ArchiveTest, SpecialFilesOfADirectoryAreRefused) {
  const std::string root = directory_.path + "/root";
  std::filesystem::create_directory(root);
  ASSERT_EQ(::mkfifo((root + "/pipe").c_str(), 0600), 0);
  const Status done = read_folder(root);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message(), HasSubstr("'./pipe' is a FIFO"));
}

TEST_F(ArchiveTest, OneDirectoryHasALimit) {
  FileTree tree({.max_files_per_directory = 2});
  ASSERT_TRUE(tree.add_file("d/a", {}, {}));
  ASSERT_TRUE(tree.add_file("d/b", {}, {}));
  ASSERT_TRUE(tree.add_file("d/b", {}, {}));  // again
  EXPECT_EQ(tree.add_file("d/c", {}, {}).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(tree.add_file("d/c/d", {}, {}).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(tree.add_hard_link("d/c", "d/a").error().kind(), ErrorKind::kInvalid);
}

}  // namespace
}  // namespace ramet::commit
