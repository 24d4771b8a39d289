// host/images/testing/image_fixture.h - a store of images in a directory of its own, and raw files to import. Thread: one test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/temporary_directory.h"
#include "host/images/image_store.h"

namespace ramet::host::testing {

using chunk::testing::Bytes;

class ImageFixture : public ::testing::Test {
 protected:
  void SetUp() override { reopen(); }
  void reopen(uint64_t cache_bytes = 256u << 20) {
    images_.reset();
    ImageStoreOptions options;
    options.directory = directory_.path + "/store";
    options.cache_bytes = cache_bytes;
    options.behind = behind_;
    Result<std::unique_ptr<ImageStore>> opened = ImageStore::open(options);
    ASSERT_TRUE(opened) << opened.error().to_string();
    images_ = *std::move(opened);
  }
  // A sparse file with noise in some of its blocks.
  UniqueFd raw_file(uint64_t blocks, const std::vector<uint64_t>& written, uint64_t seed = 1) {
    const std::string path = directory_.path + "/raw" + std::to_string(files_++);
    UniqueFd fd = open_file(path, O_RDWR | O_CREAT | O_EXCL, 0600).value();
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(blocks * image::kBlockBytes)), 0);
    for (const uint64_t block : written)
      EXPECT_TRUE(pwrite_all(fd.get(), block_bytes(block, seed), block * image::kBlockBytes));
    return fd;
  }
  static Bytes block_bytes(uint64_t block, uint64_t seed = 1) {
    return chunk::testing::noise(image::kBlockBytes, seed << 32 | block);
  }
  std::shared_ptr<OpenImage> imported(const std::string& name, const UniqueFd& file, ImageSpace space = ImageSpace::kUser) {
    Result<std::shared_ptr<OpenImage>> image = images_->import_raw({space, name}, file.get(), nullptr);
    EXPECT_TRUE(image) << (image ? "" : image.error().to_string());
    return image ? *image : nullptr;
  }
  Bytes content(OpenImage& image) {
    const UniqueFd file = raw_file(0, {});
    EXPECT_TRUE(images_->export_raw(image, file.get()));
    Bytes out(file_size(file.get()).value());
    EXPECT_TRUE(pread_exact(file.get(), out, 0));
    return out;
  }
  static Bytes content(const UniqueFd& file) {
    Bytes out(file_size(file.get()).value());
    EXPECT_TRUE(pread_exact(file.get(), out, 0));
    return out;
  }

  chunk::testing::TemporaryDirectory directory_;
  std::unique_ptr<ImageStore> images_;
  decltype(ImageStoreOptions::behind) behind_;  // taken by reopen()
  int files_ = 0;
};

}  // namespace ramet::host::testing
