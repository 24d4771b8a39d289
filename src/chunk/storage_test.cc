// Places for packs: what every one of them does, and what a directory survives.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "chunk/directory_storage.h"
#include "chunk/testing/memory_storage.h"
#include "chunk/testing/storage_conformance.h"
#include "chunk/tiered_storage.h"

namespace ramet::chunk::testing {
namespace {

std::unique_ptr<PackStorage> memory(const std::string&) { return std::make_unique<MemoryStorage>(); }
std::unique_ptr<PackStorage> directory(const std::string& path) { return DirectoryStorage::open(path).value(); }
std::unique_ptr<PackStorage> tiered(const std::string& path) {
  return std::make_unique<TieredStorage>(directory(path), memory(path));
}
std::unique_ptr<PackStorage> counted(const std::string& path) { return std::make_unique<CountedStorage>(memory(path)); }

INSTANTIATE_TEST_SUITE_P(Places, StorageConformance,
                         ::testing::Values(Place{"Memory", memory}, Place{"Directory", directory}, Place{"Tiered", tiered},
                                           Place{"Counted", counted}),
                         name_of_place);

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
    Pipe written = make_pipe().value();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const std::unique_ptr<DirectoryStorage> storage = DirectoryStorage::open(directory.path).value();
      for (uint32_t n = next;; n++) {
        (void)storage->write(id_number(n), Pages(n, kPages).bytes());
        if (n == next) written.write_end.reset();
      }
    }
    // One is there, however slow the disk is.
    written.write_end.reset();
    char end;
    ASSERT_EQ(::read(written.read_end.get(), &end, 1), 0);
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
}  // namespace ramet::chunk::testing
