// Memory becomes images: of files that a machine was captured into, and of processes that stand still. The bytes are those of
// the memory; what is stored is what changed.
#include "commit/memory_commit.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include "commit/testing/memory_fixture.h"

namespace ramet::commit {
namespace {

using chunk::testing::fill_with_noise;
using chunk::testing::noise;
using testing::Captured;
using testing::FrozenProcess;
using testing::PrivateRam;
using testing::scattered;

constexpr uint64_t kMiB = 1ull << 20, kPage = 4096, kBlock = image::kRamBlockBytes;

bool every_other(uint64_t block) { return block % 2 == 0; }
bool all(uint64_t) { return true; }

// A write that changes nothing.
void touch(std::span<std::byte> page) {
  volatile std::byte* const first = page.data();
  *first = *first;
}
// Of the process's memory, whoever's they are.
uint64_t present_pages(const FrozenProcess& process, const PrivateRam& ram) {
  std::vector<uint64_t> entries(ram.pages());
  const UniqueFd pages = open_file("/proc/" + std::to_string(process.pid()) + "/pagemap", O_RDONLY).value();
  EXPECT_TRUE(pread_exact(pages.get(), std::as_writable_bytes(std::span(entries)),
                          reinterpret_cast<uintptr_t>(ram.data()) / kPage * 8));
  return static_cast<uint64_t>(std::ranges::count_if(entries, [](uint64_t entry) { return entry >> 63 != 0; }));
}

class MemoryCommitTest : public testing::MemoryFixture {};

TEST_F(MemoryCommitTest, CapturedFilesComeBackAsTheyWere) {
  const uint64_t size = 40 * kMiB;
  Captured files(size);
  for (uint64_t block = 3; block < 12; block++) files.zeros.set_zero(block, true);
  files.write(kBlock, noise(kPage, 1));
  files.write(16 * kMiB - kPage, noise(kPage, 2));  // zero by the map: not read
  files.write(30 * kMiB, noise(4 * kMiB, 3));       // its second half lies in the other file's part: not read
  const image::ManifestRoot root = committed(files.view(), no_image(size));
  EXPECT_EQ(report_.touched_chunks, (size - 9 * kBlock) / (512 << 10));
  EXPECT_EQ(report_.own_pages, (size - 9 * kBlock) / kPage);
  EXPECT_EQ(report_.changed_pages, 1u + 512);
  EXPECT_EQ(report_.changed_chunks, 1u + 4);

  const PrivateRam got = mapped(root);
  EXPECT_TRUE(std::ranges::equal(got.page(512), noise(kPage, 1)));
  const chunk::testing::Bytes expected = noise(4 * kMiB, 3);
  EXPECT_TRUE(std::ranges::equal(got.bytes().subspan(30 * kMiB, 2 * kMiB), std::span(expected).first(2 * kMiB)));
  EXPECT_TRUE(std::ranges::all_of(got.page(4095), [](std::byte b) { return b == std::byte{0}; }));
}

// A hole in a shared file costs every later user twice.
TEST_F(MemoryCommitTest, FilledFilesHaveWholeBlocksOrNothing) {
  const uint64_t size = 40 * kMiB;
  Captured files(size);
  for (uint64_t block = 0; block < files.zeros.blocks(); block++) files.zeros.set_zero(block, block != 1 && block != 15);
  files.write(kBlock, noise(kPage, 1));
  files.write(15 * kBlock + 700'000, noise(100, 2));
  const Captured got = filled(committed(files.view(), no_image(size)));
  EXPECT_EQ(Captured::allocated(got.even) + Captured::allocated(got.odd), 2 * kBlock);
  EXPECT_EQ(Captured::allocated(got.odd), kBlock);
}

TEST_F(MemoryCommitTest, AProcessThatStandsStillBecomesItsImage) {
  const image::ManifestRoot base = image_with_noise(64 * kMiB, every_other);
  const PrivateRam ram = mapped(base);
  const std::vector<uint64_t> pages = scattered(ram.pages(), 900, 1);
  for (size_t i = 0; i < pages.size(); i++) {
    if (i % 3 == 0) fill_with_noise(ram.page(pages[i]), i + 100);
    if (i % 3 == 1) std::ranges::fill(ram.page(pages[i]), std::byte{0});
    if (i % 3 == 2) touch(ram.page(pages[i]));
  }
  fill_with_noise(ram.bytes().subspan(5 * kBlock, 3 * kMiB), 7);  // huge pages, and over a border
  const image::ManifestRoot after = committed(ram, base);
  EXPECT_GT(report_.own_pages, report_.changed_pages + 200);
  EXPECT_GT(report_.touched_chunks, report_.changed_chunks);
  expect_same(ram, after);

  // From there on.
  const PrivateRam next = mapped(after);
  fill_with_noise(next.page(77), 8);
  const image::ManifestRoot later = committed(next, after);
  EXPECT_EQ(report_.changed_chunks, 1u);
  EXPECT_EQ(report_.own_pages, 1u);
  expect_same(next, later);
  expect_same(ram, after);
}

TEST_F(MemoryCommitTest, PagesThatAreNotPresentAreNeverTouched) {
  const image::ManifestRoot base = image_with_noise(64 * kMiB, every_other);
  const PrivateRam ram = mapped(base);
  ASSERT_EQ(::madvise(ram.data(), ram.size(), MADV_NOHUGEPAGE), 0);
  fill_with_noise(ram.page(600), 1);  // its neighbours are zero
  const FrozenProcess process;
  const uint64_t before = present_pages(process, ram);
  committed(process.memory(ram.data(), ram.size()).value(), base);
  EXPECT_EQ(report_.own_pages, 1u);
  EXPECT_EQ(present_pages(process, ram), before);
}

TEST_F(MemoryCommitTest, WhatIsAsBeforeCostsNothing) {
  const image::ManifestRoot base = image_with_noise(64 * kMiB, every_other);
  const PrivateRam ram = mapped(base);
  const uint64_t before = stored_bytes_on_disk();
  for (const uint64_t page : scattered(ram.pages(), 2000, 1)) touch(ram.page(page));
  volatile std::byte read = ram.page(513)[0];  // the zero page
  static_cast<void>(read);
  EXPECT_EQ(committed(ram, base), base);
  EXPECT_GE(report_.own_pages, 2000u);
  EXPECT_EQ(report_.changed_pages, 0u);
  EXPECT_EQ(stored_bytes_on_disk(), before);
}

TEST_F(MemoryCommitTest, AChunkThatBecameZeroLeavesTheImage) {
  const image::ManifestRoot base = image_with_noise(8 * kMiB, all);
  const PrivateRam ram = mapped(base);
  std::ranges::fill(ram.bytes().subspan(3 * kBlock, kBlock), std::byte{0});
  const image::ManifestRoot after = committed(ram, base);
  EXPECT_EQ(report_.changed_chunks, 4u);
  image::Manifest manifest = manifest_in(*store_, after);
  EXPECT_TRUE(image::zero_map_of(manifest)->zero(3));
  std::ranges::fill(ram.bytes(), std::byte{0});
  EXPECT_EQ(committed(ram, after), no_image(8 * kMiB));
}

TEST_F(MemoryCommitTest, ProgressEndsWithTheWhole) {
  const image::ManifestRoot base = image_with_noise(8 * kMiB, all);
  const PrivateRam ram = mapped(base);
  fill_with_noise(ram.page(0), 1);
  fill_with_noise(ram.page(1024), 1);
  const FrozenProcess process;
  std::vector<uint64_t> told;
  ASSERT_TRUE(try_commit(process.memory(ram.data(), ram.size()).value(), base,
                         [&](const Progress& p) { told.push_back(p.done_bytes); }));
  EXPECT_THAT(told, ::testing::ElementsAre(512 << 10, (4 << 20) + (512 << 10), 8 << 20));
}

TEST_F(MemoryCommitTest, MemoryIsCommittedOverAnImageOfItsKindAndSizeOnly) {
  Captured files(8 * kMiB);
  chunk::Batch batch = store_->begin();
  for (const auto& [kind, blocks] : {std::pair(image::ImageKind::kMemory, 2049), std::pair(image::ImageKind::kDisk, 2048)}) {
    image::Manifest manifest = image::Manifest::empty(kind, static_cast<uint64_t>(blocks)).value();
    EXPECT_EQ(commit_memory(files.view(), manifest, *store_, batch).error().kind(), ErrorKind::kInvalid);
  }
}

TEST_F(MemoryCommitTest, AnImageWithADamagedOrMissingChunkIsAnError) {
  image::Manifest manifest = image::Manifest::empty(image::ImageKind::kMemory, 2048).value();
  Digest nobodys;
  nobodys.bytes[3] = std::byte{7};
  ASSERT_TRUE(manifest.set(2, nobodys));
  Captured files(8 * kMiB);
  chunk::Batch batch = store_->begin();
  EXPECT_EQ(commit_memory(files.view(), manifest, *store_, batch).error().kind(), ErrorKind::kNotFound);
  // One of another length.
  const Digest shorter = put(noise(kPage, 1));
  ASSERT_TRUE(manifest.set(2, shorter));
  EXPECT_EQ(commit_memory(files.view(), manifest, *store_, batch).error().kind(), ErrorKind::kCorrupt);
  const image::ZeroMap zeros = image::zero_map_of(manifest).value();
  const Captured out(8 * kMiB);
  EXPECT_EQ(fill_memory(manifest, *store_, zeros, out.even.get(), out.odd.get()).error().kind(), ErrorKind::kCorrupt);
}

TEST_F(MemoryCommitTest, OnlyEmptyFilesOfItsSizeAreFilled) {
  const image::ManifestRoot root = image_with_noise(8 * kMiB, every_other);
  image::Manifest manifest = manifest_in(*store_, root);
  const image::ZeroMap zeros = image::zero_map_of(manifest).value();
  const Captured out(8 * kMiB), shorter(6 * kMiB), used(8 * kMiB);
  used.write(0, noise(1, 1));
  const auto kind_with = [&](const image::ZeroMap& map, const Captured& files) {
    return fill_memory(manifest, *store_, map, out.even.get(), files.odd.get()).error().kind();
  };
  EXPECT_EQ(kind_with(zeros, shorter), ErrorKind::kInvalid);
  EXPECT_EQ(fill_memory(manifest, *store_, zeros, used.even.get(), out.odd.get()).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(kind_with(image::ZeroMap(6 * kMiB), out), ErrorKind::kInvalid);
  image::ZeroMap wrong = zeros;
  wrong.set_zero(2, true);
  EXPECT_EQ(kind_with(wrong, out), ErrorKind::kInvalid);
  EXPECT_EQ(Captured::allocated(out.even), 0u);
}

}  // namespace
}  // namespace ramet::commit
