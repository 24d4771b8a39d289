// What a commit of memory stores: the promises of docs/specification.md, at their size. Counted are all files of the store, its
// index included, and the record of the image.
#include <set>

#include "commit/raw_image.h"
#include "commit/testing/memory_fixture.h"

namespace ramet::commit {
namespace {

using chunk::testing::fill_with_noise;
using testing::Captured;
using testing::FrozenProcess;
using testing::PrivateRam;
using testing::scattered;

constexpr uint64_t kMiB = 1ull << 20, kPage = 4096;

bool every_other(uint64_t block) { return block % 2 == 0; }
uint64_t chunks_of_pages(const std::vector<uint64_t>& pages) {
  std::set<uint64_t> chunks;
  for (const uint64_t page : pages) chunks.insert(page / image::chunk_blocks(image::ImageKind::kMemory));
  return chunks.size();
}

class MemoryCostTest : public testing::MemoryFixture {};

class ScatteredPages : public MemoryCostTest, public ::testing::WithParamInterface<size_t> {};
TEST_P(ScatteredPages, CostThemselvesAndALittlePerChunk) {
  const size_t k = GetParam();
  const image::ManifestRoot base = image_with_noise(128 * kMiB, every_other);
  const PrivateRam ram = mapped(base);
  ASSERT_EQ(::madvise(ram.data(), ram.size(), MADV_NOHUGEPAGE), 0);
  const std::vector<uint64_t> pages = scattered(ram.pages(), k, 5);
  const uint64_t before = stored_bytes_on_disk();
  for (const uint64_t page : pages) fill_with_noise(ram.page(page), page + 1'000'000);
  const image::ManifestRoot after = committed(ram, base);
  const uint64_t record = image::encode_manifest_root(after).size();
  const uint64_t stored = stored_bytes_on_disk() - before + record;
  EXPECT_EQ(report_.changed_pages, k);
  EXPECT_EQ(report_.touched_chunks, chunks_of_pages(pages));
  const uint64_t most = k * kPage * 11 / 10 + report_.touched_chunks * 1024 + 65536;
  std::printf("%zu pages in %llu chunks: %llu bytes stored, limit %llu\n", k,
              static_cast<unsigned long long>(report_.touched_chunks), static_cast<unsigned long long>(stored),
              static_cast<unsigned long long>(most));
  EXPECT_LE(stored, most);
  expect_same(ram, after);
}
INSTANTIATE_TEST_SUITE_P(MemoryCostTest, ScatteredPages, ::testing::Values(256, 2000));

// Of what a guest read of its disk the store has every block already, wherever in RAM it lies.
TEST_F(MemoryCostTest, WhatAGuestReadOfItsDiskIsNotStoredAgain) {
  const uint64_t disk_pages = 200 * kMiB / kPage, own_pages = 10 * kMiB / kPage;
  std::vector<std::byte> disk(200 * kMiB, std::byte{'a'});
  for (uint64_t page = 0; page < disk_pages; page++)  // two thirds of each block do not compress
    fill_with_noise(std::span(disk).subspan(page * kPage, 2728), page + 1);
  const UniqueFd file = make_memfd("disk", 0).value();
  ASSERT_TRUE(write_all(file.get(), disk));

  Captured nothing(256 * kMiB);
  for (uint64_t block = 0; block < nothing.zeros.blocks(); block++) nothing.zeros.set_zero(block, true);
  const PrivateRam ram(nothing.zeros, nothing.even.get(), nothing.odd.get());
  ASSERT_EQ(::madvise(ram.data(), ram.size(), MADV_NOHUGEPAGE), 0);
  const std::vector<uint64_t> places = scattered(ram.pages(), disk_pages + own_pages, 3);
  for (uint64_t page = 0; page < disk_pages; page++)
    std::ranges::copy(std::span(disk).subspan(page * kPage, kPage), ram.page(places[page]).begin());
  for (uint64_t i = disk_pages; i < places.size(); i++) fill_with_noise(ram.page(places[i]), i + 1'000'000);

  const uint64_t empty = stored_bytes_on_disk();
  {
    chunk::Batch batch = store_->begin();
    ASSERT_TRUE(import_raw(file.get(), batch, nullptr));
    ASSERT_TRUE(batch.commit());
  }
  const uint64_t disk_alone = stored_bytes_on_disk() - empty;
  ASSERT_GT(disk_alone, 100 * kMiB);

  store_.reset();
  std::filesystem::remove_all(packs_path());
  std::filesystem::remove(index_path());
  reopen();
  const FrozenProcess process;
  image::Manifest manifest = manifest_in(*store_, no_image(ram.size()));
  {
    chunk::Batch batch = store_->begin();
    ASSERT_TRUE(import_raw(file.get(), batch, nullptr));
    ASSERT_TRUE(commit_memory(process.memory(ram.data(), ram.size()).value(), manifest, *store_, batch));
    ASSERT_TRUE(batch.commit());
  }
  const uint64_t both = stored_bytes_on_disk() - empty;
  std::printf("disk alone %.1f MiB, RAM beside it %.1f MiB more\n", static_cast<double>(disk_alone) / kMiB,
              static_cast<double>(both - disk_alone) / kMiB);
  EXPECT_LE(both - disk_alone, 20 * kMiB);
  // Some of it: each chunk is made of a hundred frames.
  for (uint64_t chunk = 0; chunk < manifest.chunks(); chunk += 37) {
    const Digest name = manifest.chunk(chunk).value();
    ASSERT_TRUE(std::ranges::equal(store_->get(name).value(), ram.bytes().subspan(chunk << 19, 512 << 10))) << chunk;
  }
}

}  // namespace
}  // namespace ramet::commit
