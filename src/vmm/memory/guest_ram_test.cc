#include "vmm/memory/guest_ram.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>

#include "base/file.h"

namespace ramet::vmm {
namespace {

constexpr uint64_t kMiB = 1ull << 20;
constexpr uint64_t kRam = 48 * kMiB;

uint64_t allocated_bytes(int fd) {
  struct stat st;
  return ::fstat(fd, &st) == 0 ? static_cast<uint64_t>(st.st_blocks) * 512 : 0;
}

struct Image {
  UniqueFd even, odd;
  GuestRam::Captured captured;
};

// Blocks 0 and 9 hold data, everything else is zero.
Image make_image() {
  std::unique_ptr<GuestRam> ram = *GuestRam::boot(kRam);
  EXPECT_TRUE(ram->memory().write_object(GuestAddr{5}, uint32_t{11}));
  EXPECT_TRUE(ram->memory().write_object(GuestAddr{18 * kMiB + 4096}, uint32_t{22}));
  Image image{*make_memfd("even", kRam), *make_memfd("odd", kRam), {image::ZeroMap(kRam), 0}};
  Result<GuestRam::Captured> captured = ram->capture(image.even.get(), image.odd.get());
  EXPECT_TRUE(captured);
  image.captured = *captured;
  return image;
}
std::unique_ptr<GuestRam> map(const Image& image) {
  return *GuestRam::map_image(image.captured.zeros, *image.even.duplicate(), *image.odd.duplicate());
}
uint32_t value_at(const GuestRam& ram, uint64_t address) {
  uint32_t v = 0;
  EXPECT_TRUE(ram.memory().read_object(GuestAddr{address}, v));
  return v;
}

TEST(GuestRam, RefusesOddSizes) {
  EXPECT_EQ(GuestRam::boot(0).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(GuestRam::boot(3 * kMiB).error().kind(), ErrorKind::kInvalid);
}

TEST(GuestRam, CaptureStoresOnlyDataBlocksAndNoHoles) {
  const Image image = make_image();
  EXPECT_EQ(image.captured.stored_bytes, 4 * kMiB);
  EXPECT_EQ(allocated_bytes(image.even.get()), 2 * kMiB);
  EXPECT_EQ(allocated_bytes(image.odd.get()), 2 * kMiB);
}

TEST(GuestRam, ImageShowsWhatWasCaptured) {
  const Image image = make_image();
  const std::unique_ptr<GuestRam> ram = map(image);
  EXPECT_EQ(value_at(*ram, 5), 11u);
  EXPECT_EQ(value_at(*ram, 18 * kMiB + 4096), 22u);
  EXPECT_EQ(value_at(*ram, 30 * kMiB), 0u);
}

TEST(GuestRam, MappingAnImageOwnsNothingAndWritesStayPrivate) {
  const Image image = make_image();
  const std::unique_ptr<GuestRam> ram = map(image), other = map(image);
  EXPECT_EQ(value_at(*ram, 5), 11u);
  EXPECT_TRUE(*ram->is_untouched());
  ASSERT_TRUE(ram->memory().write_object(GuestAddr{5}, uint32_t{33}));
  EXPECT_FALSE(*ram->is_untouched());
  EXPECT_EQ(value_at(*other, 5), 11u);
}

TEST(GuestRam, ShortFileIsCorrupt) {
  const Image image = make_image();
  Result<std::unique_ptr<GuestRam>> ram =
      GuestRam::map_image(image.captured.zeros, *make_memfd("short", kMiB), *image.odd.duplicate());
  EXPECT_EQ(ram.error().kind(), ErrorKind::kCorrupt);
}

TEST(GuestRam, DropGivesZeroesBackButNeverTheImage) {
  const Image image = make_image();
  const std::unique_ptr<GuestRam> ram = map(image);
  ASSERT_TRUE(ram->memory().write_object(GuestAddr{5}, uint32_t{33}));
  ASSERT_TRUE(ram->memory().write_object(GuestAddr{30 * kMiB}, uint32_t{44}));
  EXPECT_TRUE(ram->drop(GuestAddr{0}, kRam));
  EXPECT_EQ(value_at(*ram, 5), 33u);
  EXPECT_EQ(value_at(*ram, 30 * kMiB), 0u);
  EXPECT_FALSE(ram->drop(GuestAddr{kRam}, 4096));
}

TEST(GuestRam, RebaseKeepsContentAndCopyOnWrite) {
  const Image image = make_image();
  const std::unique_ptr<GuestRam> ram = map(image);
  ASSERT_TRUE(ram->memory().write_object(GuestAddr{8192}, uint32_t{55}));
  ASSERT_TRUE(ram->memory().write_object(GuestAddr{40 * kMiB}, uint32_t{66}));
  ASSERT_TRUE(ram->rebase());
  EXPECT_EQ(value_at(*ram, 5), 11u);
  EXPECT_EQ(value_at(*ram, 8192), 55u);
  EXPECT_EQ(value_at(*ram, 40 * kMiB), 66u);
  EXPECT_EQ(value_at(*map(image), 8192), 0u);
}

TEST(GuestRam, RebaseWorksOnBootedRam) {
  const std::unique_ptr<GuestRam> ram = *GuestRam::boot(kRam);
  ASSERT_TRUE(ram->memory().write_object(GuestAddr{8192}, uint32_t{55}));
  ASSERT_TRUE(ram->rebase());
  EXPECT_EQ(value_at(*ram, 8192), 55u);
}

TEST(GuestRam, SecondCaptureOfAnImageEqualsIt) {
  const Image image = make_image();
  const std::unique_ptr<GuestRam> ram = map(image);
  ASSERT_TRUE(ram->memory().write_object(GuestAddr{40 * kMiB}, uint32_t{66}));
  const UniqueFd even = *make_memfd("even", kRam), odd = *make_memfd("odd", kRam);
  const Result<GuestRam::Captured> captured = ram->capture(even.get(), odd.get());
  ASSERT_TRUE(captured);
  EXPECT_EQ(captured->stored_bytes, 6 * kMiB);
  EXPECT_FALSE(captured->zeros.zero(20));
}

}  // namespace
}  // namespace ramet::vmm
