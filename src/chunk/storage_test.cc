// Places for packs: what every one of them does, and what a directory survives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/mapped_region.h"
#include "chunk/directory_storage.h"
#include "chunk/testing/memory_storage.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk {
namespace {

using testing::TemporaryDirectory;

PackId id_number(uint32_t n) {
  PackId id{};
  for (size_t i = 0; i < 4; i++) id[15 - i] = static_cast<std::byte>(n >> 8 * i);
  return id;
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
  std::function<std::unique_ptr<PackStorage>(const std::string& directory)> open;
};

class StorageConformance : public ::testing::TestWithParam<Place> {
 protected:
  TemporaryDirectory directory_;
  std::unique_ptr<PackStorage> storage_ = GetParam().open(directory_.path + "/packs");
};

TEST_P(StorageConformance, GivesBackWhatWasWritten) {
  const Pages three(3, 3), one(1, 1);
  ASSERT_TRUE(storage_->write(id_number(3), three.bytes()));
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

TEST_P(StorageConformance, RemovingTwiceIsNoError) {
  ASSERT_TRUE(storage_->write(id_number(1), Pages(1, 1).bytes()));
  EXPECT_TRUE(storage_->remove(id_number(1)));
  EXPECT_TRUE(storage_->remove(id_number(1)));
  EXPECT_TRUE(storage_->list()->empty());
}

INSTANTIATE_TEST_SUITE_P(Places, StorageConformance,
                         ::testing::Values(Place{"Memory",
                                                 [](const std::string&) { return std::make_unique<testing::MemoryStorage>(); }},
                                           Place{"Directory",
                                                 [](const std::string& path) -> std::unique_ptr<PackStorage> {
                                                   return DirectoryStorage::open(path).value();
                                                 }}),
                         [](const ::testing::TestParamInfo<Place>& place) { return place.param.name; });

TEST(DirectoryStorage, HasOneOwner) {
  const TemporaryDirectory directory;
  const Result<std::unique_ptr<DirectoryStorage>> first = DirectoryStorage::open(directory.path);
  ASSERT_TRUE(first);
  const Result<std::unique_ptr<DirectoryStorage>> second = DirectoryStorage::open(directory.path);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind(), ErrorKind::kConflict);
}

TEST(DirectoryStorage, OpensAgainWithoutWhatACrashLeft) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(DirectoryStorage::open(directory.path).value()->write(id_number(1), Pages(1, 1).bytes()));
  const std::string left = directory.path + "/" + pack_name(id_number(2)) + ".unfinished";
  std::ofstream(left) << "half";
  std::ofstream(directory.path + "/notes.txt") << "somebody's";
  const std::unique_ptr<DirectoryStorage> storage = DirectoryStorage::open(directory.path).value();
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(directory.path + "/notes.txt"));
  EXPECT_THAT(storage->list().value(), ::testing::ElementsAre(id_number(1)));
  EXPECT_TRUE(storage->write(id_number(2), Pages(2, 1).bytes()));
}

TEST(DirectoryStorage, KilledWhileWritingLeavesWholePacksOnly) {
  const TemporaryDirectory directory;
  constexpr size_t kPages = 64;
  uint32_t next = 0;
  for (int round = 0; round < 20; round++) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const std::unique_ptr<DirectoryStorage> storage = DirectoryStorage::open(directory.path).value();
      for (uint32_t n = next;; n++) (void)storage->write(id_number(n), Pages(n, kPages).bytes());
    }
    ::usleep(static_cast<useconds_t>(3000 + 1777 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);

    const std::unique_ptr<DirectoryStorage> storage = DirectoryStorage::open(directory.path).value();
    const std::vector<PackId> packs = storage->list().value();
    std::vector<std::byte> out(kPages * kPackAlignment);
    for (const PackId& id : packs) {
      ASSERT_EQ(storage->size_bytes(id).value(), out.size());
      ASSERT_TRUE(storage->read(id, 0, out));
      const uint32_t n = std::to_integer<uint32_t>(id[15]) | std::to_integer<uint32_t>(id[14]) << 8;
      for (size_t i = 0; i < out.size(); i++) ASSERT_EQ(out[i], Pages::expected(n, i)) << "pack " << n << ", byte " << i;
      ASSERT_TRUE(storage->remove(id));
    }
    next += static_cast<uint32_t>(packs.size()) + 1;
  }
  EXPECT_GT(next, 25u);  // some were written at all
}

}  // namespace
}  // namespace ramet::chunk
