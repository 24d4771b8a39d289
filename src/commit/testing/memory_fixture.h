// commit/testing/memory_fixture.h - images of memory in a store of a test: made, mapped, changed by a process, committed, and
// compared byte by byte. Thread: one.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <numeric>
#include <random>

#include "chunk/testing/store_fixture.h"
#include "commit/memory_commit.h"
#include "commit/memory_files.h"
#include "commit/memory_fill.h"
#include "commit/testing/frozen_process.h"
#include "commit/testing/private_ram.h"

namespace ramet::commit::testing {

// Two memory files and what is in them.
struct Captured {
  UniqueFd even, odd;
  image::ZeroMap zeros;
  explicit Captured(uint64_t bytes)
      : even(make_memfd("even", bytes).value()), odd(make_memfd("odd", bytes).value()), zeros(bytes) {}
  MemoryFiles view() const { return MemoryFiles(zeros, even.get(), odd.get()); }
  void write(uint64_t offset, std::span<const std::byte> bytes) const {
    const bool in_odd = offset / image::segment_bytes(zeros.ram_bytes()) % 2 != 0;
    ASSERT_TRUE(pwrite_all(in_odd ? odd.get() : even.get(), bytes, offset));
  }
  static uint64_t allocated(const UniqueFd& file) {
    struct stat st;
    EXPECT_EQ(::fstat(file.get(), &st), 0);
    return static_cast<uint64_t>(st.st_blocks) * 512;
  }
};

// So many different pages, the same ones each time.
inline std::vector<uint64_t> scattered(uint64_t pages, size_t count, uint64_t seed) {
  std::vector<uint64_t> all(pages);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937_64(seed));
  all.resize(count);
  return all;
}

class MemoryFixture : public chunk::testing::StoreFixture {
 protected:
  static image::ManifestRoot no_image(uint64_t bytes) {
    return image::Manifest::empty(image::ImageKind::kMemory, bytes / image::kBlockBytes)->root();
  }
  Result<image::ManifestRoot> try_commit(const MemoryView& view, const image::ManifestRoot& base,
                                         const OnProgress& progress = {}) {
    image::Manifest manifest = manifest_in(*store_, base);
    chunk::Batch batch = store_->begin();
    TRY_ASSIGN(report_, commit_memory(view, manifest, *store_, batch, progress));
    TRY(batch.commit());
    return manifest.root();
  }
  image::ManifestRoot committed(const MemoryView& view, const image::ManifestRoot& base) {
    const Result<image::ManifestRoot> root = try_commit(view, base);
    EXPECT_TRUE(root) << root.error().to_string();
    return root ? *root : base;
  }
  image::ManifestRoot committed(const PrivateRam& ram, const image::ManifestRoot& base) {
    const FrozenProcess process;
    return committed(process.memory(ram.data(), ram.size()).value(), base);
  }
  Captured filled(const image::ManifestRoot& root) {
    image::Manifest manifest = manifest_in(*store_, root);
    Captured files(root.blocks * image::kBlockBytes);
    files.zeros = image::zero_map_of(manifest).value();
    const Status done = fill_memory(manifest, *store_, files.zeros, files.even.get(), files.odd.get());
    EXPECT_TRUE(done) << done.error().to_string();
    return files;
  }
  PrivateRam mapped(const image::ManifestRoot& root) {
    const Captured files = filled(root);
    return PrivateRam(files.zeros, files.even.get(), files.odd.get());
  }
  void expect_same(const PrivateRam& ram, const image::ManifestRoot& root) {
    const PrivateRam stored = mapped(root);
    ASSERT_EQ(stored.size(), ram.size());
    for (uint64_t page = 0; page < ram.pages(); page++)
      ASSERT_TRUE(std::ranges::equal(ram.page(page), stored.page(page))) << "page " << page;
  }
  // Noise in all blocks of 2 MiB that `holds` names; the others are zero.
  image::ManifestRoot image_with_noise(uint64_t bytes, const std::function<bool(uint64_t block)>& holds) {
    Captured files(bytes);
    for (uint64_t block = 0; block < files.zeros.blocks(); block++) {
      files.zeros.set_zero(block, !holds(block));
      if (holds(block)) files.write(block * image::kRamBlockBytes, chunk::testing::noise(image::kRamBlockBytes, block + 1));
    }
    return committed(files.view(), no_image(bytes));
  }
  // All files of the store, which is closed, so that its index is what it will be.
  uint64_t stored_bytes_on_disk() {
    store_.reset();
    uint64_t bytes = std::filesystem::file_size(index_path());
    for (const auto& entry : std::filesystem::directory_iterator(packs_path())) bytes += entry.file_size();
    reopen();
    return bytes;
  }

  MemoryCommit report_;
};

}  // namespace ramet::commit::testing
