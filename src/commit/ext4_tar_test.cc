// The files of an ext4 file system as a tar, and file systems that mean harm: made by mke2fs, bent by debugfs or byte by byte.
#include "commit/ext4_tar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "chunk/testing/store_fixture.h"
#include "commit/export.h"
#include "commit/ext4_disk.h"
#include "commit/raw_image.h"
#include "commit/testing/memory_disk.h"

namespace ramet::commit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const ImageLimits kLimits{.max_metadata_bytes = 1 << 20, .max_files = 1000};

class Ext4TarTest : public chunk::testing::StoreFixture {
 protected:
  void SetUp() override {
    StoreFixture::SetUp();
    std::filesystem::create_directories(root_ + "/dir/below");
    std::ofstream(root_ + "/victim") << std::string(70'000, 'v');
    std::ofstream(root_ + "/evilname") << "content";
    std::filesystem::create_symlink(std::string(100, 'l'), root_ + "/link");
    sh("truncate -s 2M " + disk_ +
       " && /sbin/mke2fs -q -F -t ext4 -b 1024 -O ^has_journal,^metadata_csum,^resize_inode,^dir_index -d " + root_ + " " +
       disk_);
  }
  static void sh(const std::string& command) { ASSERT_EQ(std::system((command + " >/dev/null 2>&1").c_str()), 0) << command; }
  void debugfs(const std::string& commands) {
    std::ofstream(directory_.path + "/commands") << commands;
    sh("/sbin/debugfs -w -f " + directory_.path + "/commands " + disk_);
  }
  // As long as each other.
  void replace(const std::string& old_bytes, const std::string& new_bytes) {
    std::string bytes = read_file(disk_).value();
    const size_t at = bytes.find(old_bytes);
    ASSERT_NE(at, bytes.npos);
    bytes.replace(at, new_bytes.size(), new_bytes);
    ASSERT_TRUE(replace_file(disk_, bytes));
  }
  size_t offset_of(const std::string& bytes) { return read_file(disk_).value().find(bytes); }
  void set_byte(size_t at, char byte) {
    std::string bytes = read_file(disk_).value();
    bytes.at(at) = byte;
    ASSERT_TRUE(replace_file(disk_, bytes));
  }
  Status write(const ImageLimits& limits = kLimits, TarUse use = TarUse::kFiles) {
    const std::string bytes = read_file(disk_).value();
    const testing::MemoryDisk disk(as_bytes(bytes));
    tar_.clear();
    return write_tar(disk, use, limits, [this](std::span<const std::byte> part) {
      tar_.append(reinterpret_cast<const char*>(part.data()), part.size());
      return Status();
    });
  }
  std::string refusal(const ImageLimits& limits = kLimits) {
    const Status done = write(limits);
    if (done) return "taken";
    EXPECT_EQ(done.error().kind(), ErrorKind::kInvalid) << done.error().message();
    return done.error().message();
  }
  std::string listing() {
    EXPECT_TRUE(replace_file(directory_.path + "/a.tar", tar_));
    sh("(tar -tf " + directory_.path + "/a.tar > " + directory_.path + "/list)");
    return read_file(directory_.path + "/list").value();
  }
  image::Manifest imported() {
    chunk::Batch batch = store_->begin();
    const UniqueFd file = open_file(disk_, O_RDONLY).value();
    image::ManifestRoot root = import_raw(file.get(), batch, nullptr).value();
    EXPECT_TRUE(batch.commit());
    return manifest_in(*store_, root);
  }

  const std::string root_ = directory_.path + "/root", disk_ = directory_.path + "/disk.raw";
  std::string tar_;
};

TEST_F(Ext4TarTest, HasAllFilesButLostAndFound) {
  ASSERT_TRUE(write());
  EXPECT_EQ(listing(), "./\n./evilname\n./link\n./victim\n./dir/\n./dir/below/\n");
}

TEST_F(Ext4TarTest, AnOldFileSystemWithoutExtents) {
  sh("rm " + disk_ + " && truncate -s 8M " + disk_ + " && /sbin/mke2fs -q -F -t ext2 -b 1024 -I 128 -d " + root_ + " " + disk_);
  ASSERT_TRUE(write());
  EXPECT_THAT(tar_, HasSubstr(std::string(70'000, 'v')));
  EXPECT_THAT(tar_, HasSubstr(std::string(100, 'l')));
}

TEST_F(Ext4TarTest, SmallFilesWithinTheirInodes) {
  sh("rm " + disk_ + " && truncate -s 2M " + disk_ + " && /sbin/mke2fs -q -F -t ext4 -b 1024 -O inline_data,^has_journal -d " +
     root_ + " " + disk_);
  ASSERT_TRUE(write());
  EXPECT_THAT(tar_, HasSubstr("content"));
  EXPECT_EQ(listing(), "./\n./evilname\n./link\n./victim\n./dir/\n./dir/below/\n");
}

// Blocks that were set aside and never written are zeros, whatever lies there.
TEST_F(Ext4TarTest, WhatWasNeverWrittenIsNotRead) {
  std::ofstream(directory_.path + "/secret") << std::string(2000, 's');
  debugfs("write " + directory_.path +
          "/secret secret\nrm secret\nwrite /dev/null ready\nfallocate ready 0 1900\nsif ready size 1900000\n");
  ASSERT_TRUE(write());
  EXPECT_THAT(tar_, AllOf(HasSubstr("ready"), Not(HasSubstr("sss"))));
}

TEST_F(Ext4TarTest, TimesAreKeptToTheNanosecond) {
  debugfs("sif victim mtime @1700000001\nsif victim mtime_extra " + std::to_string(123456789u << 2) + "\n" +
          "sif evilname mtime @5\nsif evilname mtime_extra 1\n");
  ASSERT_TRUE(write());
  EXPECT_THAT(tar_, HasSubstr("mtime=1700000001.123456789\n"));
  EXPECT_THAT(tar_, HasSubstr("mtime=4294967301\n"));
}

TEST_F(Ext4TarTest, LimitsAreKept) {
  EXPECT_EQ(refusal({.max_files = 4}), "the file system has more than 4 files");
  EXPECT_EQ(refusal({.max_metadata_bytes = 20}), "the names of the files take more than 20 bytes together");
}

TEST_F(Ext4TarTest, ReadsAreCounted) {
  const std::string bytes = read_file(disk_).value();
  const testing::MemoryDisk disk(as_bytes(bytes));
  DiskBytes source(disk);
  EXPECT_TRUE(Ext4Disk::open(source, 100));
  const Result<std::unique_ptr<Ext4Disk>> opened = Ext4Disk::open(source, 1);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().message(), "the file system goes around in circles");
}

TEST_F(Ext4TarTest, ASinkThatIsFullEndsIt) {
  const std::string bytes = read_file(disk_).value();
  const testing::MemoryDisk disk(as_bytes(bytes));
  const auto full = [](std::span<const std::byte>) { return Status(fail(ErrorKind::kNoSpace, "full")); };
  EXPECT_EQ(write_tar(disk, TarUse::kFiles, kLimits, full).error().kind(), ErrorKind::kNoSpace);
}

TEST_F(Ext4TarTest, DisksWithoutSuchAFileSystemAreRefused) {
  sh("rm " + disk_ + " && truncate -s 2M " + disk_);
  EXPECT_THAT(refusal(), HasSubstr("does not begin with an ext4 file system"));
  sh("rm " + disk_ + " && truncate -s 100 " + disk_);
  EXPECT_THAT(refusal(), HasSubstr("does not begin with an ext4 file system"));
}

TEST_F(Ext4TarTest, AFileSystemThatNeedsItsJournalIsRefused) {
  sh("rm " + disk_ + " && truncate -s 8M " + disk_ + " && /sbin/mke2fs -q -F -t ext4 " + disk_);
  debugfs("feature needs_recovery\n");
  EXPECT_THAT(refusal(), HasSubstr("was not unmounted"));
}

TEST_F(Ext4TarTest, AFileSystemLargerThanItsDiskIsRefused) {
  sh("truncate -s 1M " + disk_);
  EXPECT_THAT(refusal(), HasSubstr("is larger than the disk"));
}

struct Harm {
  const char* name;
  const char* commands;  // of debugfs
  const char* reason;
};
void PrintTo(const Harm& harm, std::ostream* out) { *out << harm.name; }

class HarmfulExt4Test : public Ext4TarTest, public ::testing::WithParamInterface<Harm> {};

TEST_P(HarmfulExt4Test, IsRefused) {
  debugfs(GetParam().commands);
  EXPECT_THAT(refusal(), HasSubstr(GetParam().reason));
}

constexpr Harm kHarms[] = {
    {"DirectoryInItself", "ln dir dir/below/again\n", "is a directory that is in two places"},
    {"RootInItself", "ln / dir/root\n", "is a directory that is in two places"},
    {"RootIsAFile", "sif / mode 0100644\n", "is no directory"},
    {"NoKind", "sif victim mode 0\n", "is of a kind that is not known"},
    {"NotInUse", "sif victim links_count 0\n", "is not in use"},
    {"GiantSize", "sif victim size 0x7ffffffffffff000\n",
     "'./victim' has 9223372036854771712 bytes, the limit is 17592186044416"},
    {"ExtentOutside", "sif victim block[5] 0x7fffffff\n", "has blocks that are not in the file system"},
    {"ExtentsThatAreNone", "sif victim block[0] 0\n", "cannot be read"},
    {"ExtentsOutOfOrder",
     "sif victim block[0] 0x0002f30a\nsif victim block[6] 0\nsif victim block[7] 1\nsif victim block[8] 100\n",
     "has blocks out of order"},
    {"ExtentsInThemselves", "sif victim block[1] 0x00000001\nsif victim block[4] 1\n", "cannot be read"},
    {"EmptyLink", "sif link size 0\n", "a link whose target has 0 bytes"},
    {"EndlessLink", "sif link size 5000\n", "a link whose target has 5000 bytes"},
    {"LinkThatEndsBefore", "sif link size 101\n", "ends before its end"},
    {"Encrypted", "sif victim flags 0x80800\n", "is encrypted"},
    {"AttributesElsewhere", "sif victim file_acl 3\n", "cannot be read"},
};
INSTANTIATE_TEST_SUITE_P(Of, HarmfulExt4Test, ::testing::ValuesIn(kHarms),
                         [](const auto& i) { return std::string(i.param.name); });

TEST_F(Ext4TarTest, NamesThatLeadElsewhereAreRefused) {
  replace("evilname", "ev/lname");
  EXPECT_THAT(refusal(), HasSubstr("has an entry 'ev/lname', which is no name"));
  replace("ev/lname", std::string("ev\0lname", 8));
  EXPECT_THAT(refusal(), HasSubstr("has an entry 'ev\\x00lname', which is no name"));
}

// `..` wherever it stands, and as often: it is passed over.
TEST_F(Ext4TarTest, TheDirectoryAboveIsNoFile) {
  replace(std::string("\x08\x01") + "evilname", std::string("\x02\x01") + "..ilname");
  ASSERT_TRUE(write());
  EXPECT_EQ(listing(), "./\n./link\n./victim\n./dir/\n./dir/below/\n");
}

TEST_F(Ext4TarTest, ANameTwiceIsRefused) {
  replace(std::string("\x06\x01") + "victim", std::string("\x04\x07") + "linkim");
  EXPECT_THAT(refusal(), HasSubstr("'./link' is there twice"));
}

TEST_F(Ext4TarTest, EntriesOfNoLengthAreRefused) {
  set_byte(offset_of("evilname") - 4, 0);
  EXPECT_THAT(refusal(), HasSubstr("cannot be read"));
}

TEST_F(Ext4TarTest, EntriesOfInodesThatThereAreNotAreRefused) {
  set_byte(offset_of("evilname") - 5, 1);
  EXPECT_THAT(refusal(), HasSubstr("'./evilname' cannot be read"));
}

// Files that share their blocks: more comes out than there can be.
TEST_F(Ext4TarTest, ABombOfSharedBlocksIsRefused) {
  std::string commands;
  for (int i = 0; i < 40; i++)
    commands += "copy_inode victim <" + std::to_string(30 + i) + ">\nln <" + std::to_string(30 + i) + "> dir/f" +
                std::to_string(i) + "\n";
  debugfs(commands);
  EXPECT_THAT(refusal(), HasSubstr("have more data than the disk"));
  EXPECT_LT(tar_.size(), 3u << 20);
}

TEST_F(Ext4TarTest, ALayerHasNoNamesThatTakeFilesAway) {
  ASSERT_TRUE(write(kLimits, TarUse::kLayer));
  const std::string before = tar_;
  ASSERT_TRUE(write());
  EXPECT_EQ(tar_, before) << "else it is the same tar";
  replace("evilname", ".wh.name");
  EXPECT_TRUE(write());
  const Status layer = write(kLimits, TarUse::kLayer);
  ASSERT_FALSE(layer);
  EXPECT_EQ(layer.error().kind(), ErrorKind::kInvalid);
  EXPECT_THAT(layer.error().message(), HasSubstr("'./.wh.name' cannot stand in a layer"));
}

// The real thing, in its own process.
TEST_F(Ext4TarTest, AnImageComesOutAsATar) {
  image::Manifest manifest = imported();
  const std::string out = directory_.path + "/out.tar";
  ASSERT_TRUE(export_image({.format = ExportFormat::kTar}, manifest, *store_, out));
  ASSERT_TRUE(write());
  EXPECT_EQ(read_file(out).value(), tar_);
}

TEST_F(Ext4TarTest, ARefusalComesOutOfTheProcess) {
  debugfs(kHarms[0].commands);
  image::Manifest manifest = imported();
  const Error error = export_unnamed({.format = ExportFormat::kTar}, manifest, *store_, directory_.path).error();
  EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
  EXPECT_EQ(error.message(), "the file system is damaged: './dir/below/again' is a directory that is in two places");
  EXPECT_THAT(error.hint(), HasSubstr("Export the image as raw"));
}

TEST_F(Ext4TarTest, AStoreThatLostAChunkIsNoFaultOfTheImage) {
  image::Manifest manifest = imported();
  ASSERT_TRUE(manifest.chunk(0));  // its page is known
  ASSERT_TRUE(collect({}));
  EXPECT_EQ(export_unnamed({.format = ExportFormat::kTar}, manifest, *store_, directory_.path).error().kind(),
            ErrorKind::kNotFound);
}

}  // namespace
}  // namespace ramet::commit
