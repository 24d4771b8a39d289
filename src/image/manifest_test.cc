// Manifests: their bytes, and images that are made, changed and compared page by page.
#include "image/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/file.h"

namespace ramet::image {
namespace {

Digest numbered(uint64_t n) {
  Digest d;
  for (size_t i = 0; i < 8; i++) d.bytes[i] = static_cast<std::byte>(n >> 8 * i);
  d.bytes[31] = std::byte{1};
  return d;
}

// Keeps pages under numbers instead of digests.
class PageShelf {
 public:
  Manifest::KeepPage keep() {
    return [this](const std::string& page, const Digest&) -> Result<Digest> {
      if (full) return fail(ErrorKind::kNoSpace, "no space (test)");
      for (const auto& [name, bytes] : pages)
        if (bytes == page) return name;
      const Digest name = numbered(1'000'000 + pages.size());
      pages[name] = page;
      return name;
    };
  }
  Manifest::LoadPage load() {
    return [this](const Digest& name) -> Result<std::string> {
      loads++;
      const auto it = pages.find(name);
      if (it == pages.end()) return fail(ErrorKind::kNotFound, "no such page");
      return it->second;
    };
  }
  std::map<Digest, std::string> pages;
  int loads = 0;
  bool full = false;
};

constexpr uint64_t kBlocksOf128GiB = (128ull << 30) / kBlockBytes;

TEST(ManifestFormat, RootSurvivesARoundTripAndTellsEveryDamage) {
  const ManifestRoot root{ImageKind::kMemory, 128 * 256 + 1, {numbered(1), kZeros}};
  std::string bytes = encode_manifest_root(root);
  EXPECT_EQ(decode_manifest_root(as_bytes(bytes)).value(), root);
  for (size_t i = 0; i < bytes.size(); i++) {
    bytes[i] ^= 1;
    EXPECT_FALSE(decode_manifest_root(as_bytes(bytes))) << i;
    bytes[i] ^= 1;
  }
  for (size_t length = 0; length < bytes.size(); length++) EXPECT_FALSE(decode_manifest_root(as_bytes(bytes).first(length)));
  EXPECT_FALSE(decode_manifest_root(as_bytes(bytes + std::string(32, '\0'))));
}

// What an attacker would write: numbers that do not go together, under right checksums.
TEST(ManifestFormat, RootThatContradictsItselfIsRefused) {
  const std::string good = encode_manifest_root({ImageKind::kDisk, 10, {kZeros}});
  const auto with = [&](size_t offset, uint64_t value, size_t size) {
    std::string bytes = good;
    bytes.replace(offset, size, reinterpret_cast<const char*>(&value), size);
    const uint32_t crc = crc32c(bytes.data(), 60);
    bytes.replace(60, 4, reinterpret_cast<const char*>(&crc), 4);
    return decode_manifest_root(as_bytes(bytes));
  };
  EXPECT_TRUE(with(8, 1, 4));
  EXPECT_EQ(with(8, 2, 4).error().kind(), ErrorKind::kUnsupported);
  EXPECT_FALSE(with(16, 3, 4));                   // kind
  EXPECT_FALSE(with(20, 128, 4));                 // chunk_blocks
  EXPECT_FALSE(with(24, kMaxDiskBlocks + 1, 8));  // blocks
  EXPECT_FALSE(with(24, ~uint64_t{0}, 8));
  EXPECT_FALSE(with(24, 256 * 4096 + 1, 8));  // one page more than there are
  EXPECT_FALSE(with(32, 2, 8));               // pages
  EXPECT_FALSE(with(32, ~uint64_t{0}, 8));
}

// The bytes of version 1 stay readable: the golden file was written by a program of its own, from docs/formats/manifest.md.
TEST(ManifestFormat, GoldenFileIsReadable) {
  const std::string bytes = read_file(std::string(RAMET_GOLDEN_DIR) + "/manifest_v1.bin").value();
  const Result<ManifestRoot> root = decode_manifest_root(as_bytes(bytes));
  ASSERT_TRUE(root) << root.error().message();
  EXPECT_EQ(root->kind, ImageKind::kDisk);
  EXPECT_EQ(root->blocks, 600u * 4096 + 5);
  ASSERT_EQ(root->pages.size(), 3u);
  for (size_t i = 0; i < 32; i++) {
    EXPECT_EQ(root->pages[0].bytes[i], static_cast<std::byte>(i));
    EXPECT_EQ(root->pages[2].bytes[i], static_cast<std::byte>(32 + i));
  }
  EXPECT_EQ(root->pages[1], kZeros);
  EXPECT_EQ(encode_manifest_root(*root), bytes);
}

TEST(Manifest, AnEmptyDiskIsSmallAndLoadsNothing) {
  Manifest m = Manifest::empty(ImageKind::kDisk, kBlocksOf128GiB).value();
  EXPECT_LT(encode_manifest_root(m.root()).size(), 2048u);
  EXPECT_EQ(m.chunk(8191).value(), kZeros);
  EXPECT_EQ(m.chunk(8192).error().kind(), ErrorKind::kInvalid);
  EXPECT_FALSE(Manifest::empty(ImageKind::kDisk, 0));
  EXPECT_FALSE(Manifest::empty(ImageKind::kDisk, kMaxDiskBlocks + 1));
}

TEST(Manifest, OnlyChangedPagesAreWritten) {
  PageShelf shelf;
  Manifest m = Manifest::empty(ImageKind::kDisk, kBlocksOf128GiB).value();
  ASSERT_TRUE(m.set(0, numbered(1)));
  ASSERT_TRUE(m.set(255, numbered(2)));
  ASSERT_TRUE(m.set(8191, numbered(3)));
  ASSERT_TRUE(m.seal(shelf.keep()));
  EXPECT_EQ(shelf.pages.size(), 2u);

  Manifest later = Manifest::of(decode_manifest_root(as_bytes(encode_manifest_root(m.root()))).value(), shelf.load());
  EXPECT_EQ(later.chunk(255).value(), numbered(2));
  ASSERT_TRUE(later.set(300, numbered(4)));
  ASSERT_TRUE(later.set(0, numbered(1)));  // as it was
  EXPECT_EQ(shelf.loads, 1);
  ASSERT_TRUE(later.seal(shelf.keep()));
  EXPECT_EQ(shelf.pages.size(), 3u);
  EXPECT_EQ(later.root().pages[0], m.root().pages[0]);
}

TEST(Manifest, ZerosLeaveIt) {
  PageShelf shelf;
  Manifest m = Manifest::empty(ImageKind::kMemory, 128 * 300).value();
  ASSERT_TRUE(m.set(299, numbered(1)));
  ASSERT_TRUE(m.seal(shelf.keep()));
  ASSERT_TRUE(m.set(299, kZeros));
  ASSERT_TRUE(m.seal(shelf.keep()));
  EXPECT_EQ(m.root(), Manifest::empty(ImageKind::kMemory, 128 * 300)->root());
}

TEST(Manifest, AFailedSealCanBeDoneAgain) {
  PageShelf shelf;
  Manifest m = Manifest::empty(ImageKind::kDisk, kBlocksOf128GiB).value();
  ASSERT_TRUE(m.set(5, numbered(1)));
  shelf.full = true;
  EXPECT_EQ(m.seal(shelf.keep()).error().kind(), ErrorKind::kNoSpace);
  shelf.full = false;
  ASSERT_TRUE(m.seal(shelf.keep()));
  Manifest again = Manifest::of(m.root(), shelf.load());
  EXPECT_EQ(again.chunk(5).value(), numbered(1));
}

TEST(Manifest, PagesThatCannotBeAreErrors) {
  PageShelf shelf;
  ManifestRoot root{ImageKind::kDisk, 10 * 4096, {numbered(7)}};
  EXPECT_EQ(Manifest::of(root, shelf.load()).chunk(0).error().kind(), ErrorKind::kNotFound);
  shelf.pages[numbered(7)] = "short";
  EXPECT_EQ(Manifest::of(root, shelf.load()).chunk(0).error().kind(), ErrorKind::kCorrupt);
  ManifestPage page{};
  page[10] = numbered(1);  // the image has chunks 0 to 9
  shelf.pages[numbered(7)] = encode_manifest_page(page);
  EXPECT_EQ(Manifest::of(root, shelf.load()).chunk(0).error().kind(), ErrorKind::kCorrupt);
}

TEST(Manifest, DifferencesAreFoundWithoutLoadingEqualPages) {
  PageShelf shelf;
  std::map<uint64_t, Digest> model;
  std::mt19937_64 random(1);
  Manifest a = Manifest::empty(ImageKind::kDisk, kBlocksOf128GiB).value();
  for (int i = 0; i < 500; i++) {
    const uint64_t n = random() % 8192;
    model[n] = numbered(random());
    ASSERT_TRUE(a.set(n, model[n]));
  }
  ASSERT_TRUE(a.seal(shelf.keep()));
  Manifest b = Manifest::of(a.root(), shelf.load());
  ASSERT_TRUE(b.set(1000, numbered(5)));
  ASSERT_TRUE(b.set(4000, kZeros));
  ASSERT_TRUE(b.set(4001, numbered(6)));
  ASSERT_TRUE(b.seal(shelf.keep()));
  Manifest x = Manifest::of(a.root(), shelf.load()), y = Manifest::of(b.root(), shelf.load());
  shelf.loads = 0;
  std::vector<uint64_t> found;
  ASSERT_TRUE(visit_differences(x, y, [&](uint64_t n, const Digest& in_x, const Digest& in_y) {
    found.push_back(n);
    EXPECT_EQ(in_x, model.contains(n) ? model[n] : kZeros);
    EXPECT_NE(in_x, in_y);
  }));
  std::vector<uint64_t> expected = {1000, 4001};
  if (model.contains(4000)) expected.insert(expected.begin() + 1, 4000);
  EXPECT_EQ(found, expected);
  EXPECT_LE(shelf.loads, 4);
  Manifest other = Manifest::empty(ImageKind::kMemory, 128).value();
  EXPECT_EQ(visit_differences(x, other, {}).error().kind(), ErrorKind::kInvalid);
}

}  // namespace
}  // namespace ramet::image
