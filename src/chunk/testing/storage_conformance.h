// chunk/testing/storage_conformance.h - what every place for packs does: one suite, run over all of them.
// Instantiate it with places:  INSTANTIATE_TEST_SUITE_P(Places, StorageConformance, ::testing::Values(Place{...}),
// name_of_place);
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>
#include <memory>
#include <string>

#include "base/mapped_region.h"
#include "chunk/pack_storage.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk::testing {

inline PackId id_number(uint32_t n) {
  PackId id{};
  for (size_t i = 0; i < 4; i++) id[15 - i] = static_cast<std::byte>(n >> 8 * i);
  return id;
}

// For EXPECT_TRUE with a reason.
inline ::testing::AssertionResult succeeds(const Status& status) {
  return status ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << status.error().to_string();
}

// Page-aligned, every byte tells where it belongs.
class Pages {
 public:
  Pages(uint32_t n, size_t pages)
      : region_(MappedRegion::map(pages * kPackAlignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS).value()) {
    for (size_t i = 0; i < region_.size(); i++) region_.data()[i] = expected(n, i);
  }
  static std::byte expected(uint32_t n, size_t i) { return static_cast<std::byte>(n * 31 + i + i / 4096 * 7); }
  std::span<const std::byte> bytes() const { return region_.bytes(); }

 private:
  MappedRegion region_;
};

struct Place {
  std::string name;
  std::function<std::unique_ptr<PackStorage>(const std::string& directory)> open;  // a place of its own for each directory
};
inline void PrintTo(const Place& place, std::ostream* out) { *out << place.name; }
inline std::string name_of_place(const ::testing::TestParamInfo<Place>& place) { return place.param.name; }

class StorageConformance : public ::testing::TestWithParam<Place> {
 protected:
  TemporaryDirectory directory_;
  std::unique_ptr<PackStorage> storage_ = GetParam().open(directory_.path + "/packs");
};

TEST_P(StorageConformance, GivesBackWhatWasWritten) {
  const Pages three(3, 3), one(1, 1);
  ASSERT_TRUE(succeeds(storage_->write(id_number(3), three.bytes())));
  ASSERT_TRUE(storage_->write(id_number(1), one.bytes()));
  EXPECT_EQ(storage_->size_bytes(id_number(3)).value(), 3 * kPackAlignment);
  std::vector<std::byte> out(5000);
  ASSERT_TRUE(storage_->read(id_number(3), 777, out));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), three.bytes().begin() + 777));
  EXPECT_THAT(storage_->list().value(), ::testing::UnorderedElementsAre(id_number(1), id_number(3)));
}

TEST_P(StorageConformance, NeverWritesOverAPack) {
  const Pages old(1, 1), other(2, 2);
  ASSERT_TRUE(storage_->write(id_number(1), old.bytes()));
  const Status again = storage_->write(id_number(1), other.bytes());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind(), ErrorKind::kExists);
  std::vector<std::byte> out(kPackAlignment);
  ASSERT_TRUE(storage_->read(id_number(1), 0, out));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), old.bytes().begin()));
}

TEST_P(StorageConformance, ReadsNothingThatIsNotThere) {
  std::vector<std::byte> out(100);
  EXPECT_EQ(storage_->read(id_number(9), 0, out).error().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(storage_->size_bytes(id_number(9)).error().kind(), ErrorKind::kNotFound);
  ASSERT_TRUE(storage_->write(id_number(1), Pages(1, 1).bytes()));
  EXPECT_EQ(storage_->read(id_number(1), kPackAlignment - 99, out).error().kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(storage_->read(id_number(1), 1ull << 40, out).error().kind(), ErrorKind::kCorrupt);
}

TEST_P(StorageConformance, APackThatComesAnewIsReadAsItIsNow) {
  const Pages old(1, 1), other(2, 1);
  std::vector<std::byte> out(kPackAlignment);
  for (const Pages* pages : {&old, &other, &old}) {
    ASSERT_TRUE(storage_->write(id_number(1), pages->bytes()));
    ASSERT_TRUE(storage_->read(id_number(1), 0, out));
    EXPECT_TRUE(std::ranges::equal(out, pages->bytes()));
    ASSERT_TRUE(storage_->remove(id_number(1)));
    EXPECT_EQ(storage_->read(id_number(1), 0, out).error().kind(), ErrorKind::kNotFound);
  }
}

TEST_P(StorageConformance, RemovingTwiceIsNoError) {
  ASSERT_TRUE(storage_->write(id_number(1), Pages(1, 1).bytes()));
  EXPECT_TRUE(storage_->remove(id_number(1)));
  EXPECT_TRUE(storage_->remove(id_number(1)));
  EXPECT_TRUE(storage_->list()->empty());
}

}  // namespace ramet::chunk::testing
