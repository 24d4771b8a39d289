// Images on a disk that is really full: each step that writes fails in turn, says why, and leaves what was there before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/testing/small_disk.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/temporary_directory.h"
#include "host/images/images.h"

namespace ramet::host {
namespace {

using image::kBlockBytes;
using ramet::testing::fail_at_every_write;
using ramet::testing::on_a_small_disk;
using ramet::testing::SmallDisk;
using Bytes = std::vector<std::byte>;

constexpr uint64_t kDiskBytes = 64u << 20;
constexpr size_t kBlocks = 64, kFewBlocks = 24;
constexpr uint64_t kDiskOfFiles = 64u << 20;  // the least there can be
// Each attempt runs programs; RAMET_SOAK tries every page.
const uint64_t kStepBytes = std::getenv("RAMET_SOAK") ? 4096 : 16 * 4096;

Bytes image_number(uint64_t n, size_t blocks = kBlocks) { return chunk::testing::noise(blocks * kBlockBytes, n); }

class FullDiskTest : public ::testing::Test {
 protected:
  // With an image "first" that was there before.
  void on_disk(const std::function<void(SmallDisk&)>& use) {
    on_a_small_disk(directory_.path + "/disk", kDiskBytes, [&](SmallDisk& disk) {
      open(disk);
      ASSERT_TRUE(upload("first", image_number(1)));
      use(disk);
      images_.reset();
    });
  }
  void open(const SmallDisk& disk) {
    images_.reset();
    Images::Options options;
    options.store.directory = disk.path() + "/store";
    options.store.cache_bytes = 1u << 20;
    options.socket = directory_.path + "/chunk.sock";
    images_ = Images::open(std::move(options)).value();
  }
  Status upload(const std::string& name, const Bytes& bytes, const ImportOptions& options = {.format = "raw"}) {
    TRY_ASSIGN(const std::unique_ptr<ImageUpload> upload, images_->upload(name));
    TRY(upload->write(bytes));
    TRY(upload->finish(options));
    return {};
  }
  Result<Bytes> download(const std::string& name, const std::string& format = "raw") {
    TRY_ASSIGN(const std::unique_ptr<ImageDownload> download, images_->download(name, {.format = format}));
    Bytes out;
    for (;;) {
      TRY_ASSIGN(const std::span<const std::byte> piece, download->next());
      if (piece.empty()) return out;
      out.insert(out.end(), piece.begin(), piece.end());
    }
  }
  // A few files, made beside the small disk.
  Bytes in_format(const std::string& format) {
    const std::string path = directory_.path + "/made";
    std::filesystem::create_directories(path + "/files/below");
    const Bytes noise = image_number(2, kFewBlocks);
    EXPECT_TRUE(replace_file(path + "/files/below/noise", {reinterpret_cast<const char*>(noise.data()), noise.size()}));
    EXPECT_TRUE(replace_file(path + "/files/word", "word"));
    const std::string commands = format == "qcow2" ? "cp files/below/noise raw && qemu-img convert -q -f raw -O qcow2 raw out"
                                 : format == "tar"
                                     ? "tar -C files -cf out ."
                                     : "umoci init --layout l && umoci new --image l:a && umoci unpack --image l:a b && "
                                       "cp -r files/. b/rootfs && umoci repack --image l:a b && tar -C l -cf out .";
    EXPECT_EQ(std::system(("cd " + path + " && rm -rf out l b && (" + commands + ") >log 2>&1").c_str()), 0);
    const std::string bytes = read_file(path + "/out").value();
    const std::span<const std::byte> all = as_bytes(bytes);
    return Bytes(all.begin(), all.end());
  }
  // What fails says where there is no room.
  static Status saying_where(const SmallDisk& disk, Status done) {
    if (done) return done;
    EXPECT_NE(done.error().message().find(disk.path()), std::string::npos) << done.error().message();
    return done;
  }
  std::vector<std::string> names() { return images_->store().names(ImageSpace::kUser).value(); }
  const chunk::Index& index() { return images_->store().chunks().index(); }

  chunk::testing::TemporaryDirectory directory_;
  std::unique_ptr<Images> images_;
};

TEST_F(FullDiskTest, AnUploadIsThereOrLeavesNothing) {
  on_disk([this](SmallDisk& disk) {
    ASSERT_TRUE(images_->store().collect());
    const std::set<std::string> files = disk.files();
    const std::vector<Digest> chunks = index().chunks().value();
    fail_at_every_write(
        disk, [&] { return saying_where(disk, upload("second", image_number(2, kFewBlocks))); },
        [&] {
          EXPECT_EQ(names(), std::vector<std::string>{"first"});
          EXPECT_EQ(download("first").value(), image_number(1));
          const bool left = index().chunks().value() != chunks || !index().unfinished_packs()->empty();
          EXPECT_TRUE(!left || images_->store().wants_collection());
          ASSERT_TRUE(images_->store().collect());
          EXPECT_EQ(index().chunks().value(), chunks);
          EXPECT_TRUE(index().unfinished_packs()->empty());
          EXPECT_EQ(disk.files().size(), files.size());
        });
    EXPECT_EQ(download("second").value(), image_number(2, kFewBlocks));
  });
}

// Of every format, the upload, the work on it and what it becomes are in turn what does not fit.
class UploadOfFormat : public FullDiskTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(UploadOfFormat, IsThereOrLeavesNothing) {
  on_disk([this](SmallDisk& disk) {
    const ImportOptions options{.format = GetParam(), .disk_bytes = kDiskOfFiles};
    const Bytes bytes = in_format(GetParam());
    ASSERT_TRUE(images_->store().collect());
    const std::set<std::string> files = disk.files();
    const std::vector<Digest> chunks = index().chunks().value();
    fail_at_every_write(
        disk, [&] { return saying_where(disk, upload("second", bytes, options)); },
        [&] {
          EXPECT_EQ(names(), std::vector<std::string>{"first"});
          EXPECT_EQ(download("first").value(), image_number(1));
          ASSERT_TRUE(images_->store().collect());
          EXPECT_EQ(index().chunks().value(), chunks);
          EXPECT_EQ(disk.files().size(), files.size());
        },
        kStepBytes);
    EXPECT_EQ(names(), (std::vector<std::string>{"first", "second"}));
  });
}
INSTANTIATE_TEST_SUITE_P(Of, UploadOfFormat, ::testing::Values("qcow2", "tar", "oci"));

class DownloadOfFormat : public FullDiskTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(DownloadOfFormat, ComesOrLeavesNothing) {
  on_disk([this](SmallDisk& disk) {
    ASSERT_TRUE(upload("files", in_format("tar"), {.format = "tar", .disk_bytes = kDiskOfFiles}));
    const Bytes whole = download("files", GetParam()).value();
    const std::set<std::string> files = disk.files();
    Bytes out;
    fail_at_every_write(
        disk,
        [&]() -> Status {
          Result<Bytes> came = download("files", GetParam());
          if (!came) return saying_where(disk, tl::unexpected<Error>(came.error()));
          out = *std::move(came);
          return {};
        },
        [&] { EXPECT_EQ(disk.files(), files); }, kStepBytes);
    EXPECT_EQ(out, whole);
  });
}
INSTANTIATE_TEST_SUITE_P(Of, DownloadOfFormat, ::testing::Values("qcow2", "tar", "oci"));

// A raw image is sent as it is read: a full disk does not keep it here.
TEST_F(FullDiskTest, ARawImageComesAllTheSame) {
  on_disk([this](SmallDisk& disk) {
    disk.fill();
    EXPECT_EQ(download("first").value(), image_number(1));
  });
}

// The index has space set aside to note it.
TEST_F(FullDiskTest, RemovingAnImageGivesItsSpaceBack) {
  on_disk([this](SmallDisk& disk) {
    ASSERT_TRUE(upload("second", image_number(2)));
    disk.fill();
    EXPECT_TRUE(images_->remove("second"));
    const Result<chunk::Store::Collected> collected = images_->store().collect();
    ASSERT_TRUE(collected) << collected.error().to_string();
    EXPECT_EQ(collected->packs_removed, 1u);
    EXPECT_GE(disk.free_bytes(), kBlocks * kBlockBytes);
    EXPECT_EQ(download("first").value(), image_number(1));
  });
}

// Of "first" half is still needed by "version": moving that needs room, and what is dead altogether makes it.
TEST_F(FullDiskTest, ACollectionThatCannotMoveTakesAwayWhatIsDeadAltogether) {
  on_disk([this](SmallDisk& disk) {
    Bytes half = image_number(1);
    std::ranges::fill(std::span(half).first(half.size() / 4 * 3), std::byte{0});
    ASSERT_TRUE(upload("version", half, {.format = "raw", .parent = "first"}));
    ASSERT_TRUE(upload("dead", image_number(2)));
    disk.fill();
    EXPECT_TRUE(images_->remove("first"));
    EXPECT_EQ(images_->store().collect().error().kind(), ErrorKind::kNoSpace);
    EXPECT_TRUE(images_->remove("dead"));
    const chunk::Store::Collected some = images_->store().collect().value();
    EXPECT_TRUE(some.only_whole_packs);
    EXPECT_TRUE(images_->store().wants_collection());
    const chunk::Store::Collected rest = images_->store().collect().value();
    EXPECT_FALSE(rest.only_whole_packs);
    EXPECT_LT(rest.bytes_after, rest.bytes_before);
    EXPECT_FALSE(images_->store().wants_collection());
    EXPECT_EQ(download("version").value(), half);
  });
}

TEST_F(FullDiskTest, AStoreOpensAndIsRead) {
  on_disk([this](SmallDisk& disk) {
    disk.fill();
    open(disk);
    EXPECT_EQ(download("first").value(), image_number(1));
  });
}

}  // namespace
}  // namespace ramet::host
