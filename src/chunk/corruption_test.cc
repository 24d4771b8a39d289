// A small store, every byte of every file flipped in turn, every file cut and removed: no reply is ever wrong, and verify says
// what is damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/file.h"
#include "chunk/directory_storage.h"
#include "chunk/maintenance.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/memory_storage.h"
#include "chunk/testing/temporary_directory.h"
#include "chunk/tiered_storage.h"

namespace ramet::chunk {
namespace {

using testing::Bytes;
using ::testing::HasSubstr;
using testing::MemoryStorage;
using testing::TemporaryDirectory;

constexpr size_t kMaxStoreBytes = 65536;

bool every_byte(size_t) { return true; }

class CorruptionTest : public ::testing::Test {
 protected:
  CorruptionTest() {
    const std::unique_ptr<Store> store = open().value();
    // Text, which is compressed, and zeros; then the same once more, with a block of noise before it.
    Bytes first(3 * kBlockBytes), second = testing::blocks(9, 1);
    for (size_t i = 0; i < 2 * kBlockBytes; i++) first[i] = static_cast<std::byte>("warm state "[(i + i / 700) % 11]);
    second.insert(second.end(), first.begin(), first.end());
    Batch batch = store->begin();
    truth_[batch.put(first).value().value()] = first;
    EXPECT_TRUE(batch.commit());
    Batch other = store->begin();
    truth_[other.put(second).value().value()] = second;
    EXPECT_TRUE(other.commit());
  }
  void SetUp() override {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path)) {
      if (!entry.is_regular_file() || entry.path().filename() == "lock") continue;
      files_[entry.path()] = read_file(entry.path()).value();
      bytes += files_[entry.path()].size();
    }
    ASSERT_EQ(files_.size(), 3u);  // two packs and the index
    ASSERT_LE(bytes, kMaxStoreBytes);
  }

  Result<std::unique_ptr<Store>> open() const {
    return Store::open(DirectoryStorage::open(directory_.path + "/packs").value(), index_path(), {});
  }
  // All packs as they should be.
  std::unique_ptr<MemoryStorage> remote() const {
    std::unique_ptr<MemoryStorage> out = std::make_unique<MemoryStorage>();
    for (const auto& [path, content] : files_) {
      PackId id;
      if (from_hex(std::filesystem::path(path).stem().string(), id))
        out->packs[id].assign(as_bytes(content).begin(), as_bytes(content).end());
    }
    return out;
  }
  void restore() const {
    std::filesystem::remove(directory_.path + "/index.db-wal");
    std::filesystem::remove(directory_.path + "/index.db-shm");
    for (const auto& [path, content] : files_) write(path, content);
  }
  static void write(const std::string& path, std::string_view content) {
    const UniqueFd fd = open_file(path, O_WRONLY | O_CREAT, 0600).value();
    ASSERT_TRUE(write_all(fd.get(), as_bytes(content)));
    ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(content.size())), 0);
  }

  struct Seen {
    bool all_there = false;  // every chunk and block could be read
    std::string problems;    // as open() or verify says
  };
  // Whether every chunk could be read, as a whole and by blocks. Every reply is checked; an error is one.
  bool reads_all(const Store& store) const {
    bool all_there = true;
    for (const auto& [digest, chunk] : truth_) {
      Bytes out(chunk.size());
      const Status read = store.read(digest, 0, out);
      EXPECT_TRUE(!read || out == chunk) << "WRONG BYTES";
      all_there &= read.has_value();
      const Result<Bytes> got = store.get(digest);
      EXPECT_TRUE(!got || *got == chunk) << "WRONG BYTES";
      all_there &= got.has_value();
    }
    return all_there;
  }
  Seen look(const Store& store) const {
    Seen seen;
    const Result<VerifyReport> report = verify(store);
    if (!report) seen.problems = report.error().to_string();
    if (report)
      for (const Problem& p : report->problems) seen.problems += p.where + ": " + p.error.to_string() + "\n";
    seen.all_there = reads_all(store);
    return seen;
  }
  Seen look_opening() const {
    const Result<std::unique_ptr<Store>> store = open();
    return store ? look(**store) : Seen{.problems = store.error().to_string()};
  }
  std::string index_path() const { return directory_.path + "/index.db"; }
  std::vector<std::string> pack_paths() const {
    std::vector<std::string> out;
    for (const auto& [path, content] : files_)
      if (path != index_path()) out.push_back(path);
    return out;
  }
  static std::string name_of(const std::string& pack_path) { return std::filesystem::path(pack_path).stem(); }

  // With one byte changed.
  void for_each_flip(const std::string& path, const std::function<bool(size_t i)>& wanted,
                     const std::function<void(const std::string& damage)>& try_it) const {
    const std::string& good = files_.at(path);
    for (size_t i = 0; i < good.size() && !HasFatalFailure(); i++) {
      if (!wanted(i)) continue;
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
      write(path, bad);
      try_it("byte " + std::to_string(i) + " of " + path);
      write(path, good);
    }
  }
  // Cut at some lengths, and removed.
  void for_each_loss(const std::string& path, const std::function<void(const std::string& damage)>& try_it) const {
    const std::string& good = files_.at(path);
    for (const size_t length : {size_t{0}, size_t{1}, size_t{100}, size_t{4096}, good.size() / 2, good.size() - 1}) {
      if (length >= good.size()) continue;
      write(path, std::string_view(good).substr(0, length));
      try_it(path + " cut to " + std::to_string(length));
      restore();
    }
    std::filesystem::remove(path);
    try_it(path + " removed");
    restore();
  }
  void expect_others_untouched(const std::string& path) const {
    for (const auto& [name, content] : files_) EXPECT_TRUE(name == path || read_file(name).value() == content) << name;
  }

  TemporaryDirectory directory_;
  std::map<Digest, Bytes> truth_;
  std::map<std::string, std::string> files_;
};

TEST_F(CorruptionTest, EveryFlippedByteOfAPackIsNamedAndNoReplyIsWrong) {
  const std::unique_ptr<Store> store = open().value();
  for (const std::string& path : pack_paths())
    for_each_flip(path, every_byte, [&](const std::string& damage) {
      ASSERT_THAT(look(*store).problems, HasSubstr(name_of(path))) << damage;
      ASSERT_FALSE(HasFailure()) << damage;
    });
}

TEST_F(CorruptionTest, EveryLostPackIsNamedAndNoReplyIsWrong) {
  for (const std::string& path : pack_paths())
    for_each_loss(path, [&](const std::string& damage) {
      EXPECT_THAT(look_opening().problems, HasSubstr(name_of(path))) << damage;
      expect_others_untouched(path);
    });
}

// Both places in memory: a directory would sync each of the thousands of packs that come back.
TEST_F(CorruptionTest, WithARemoteEveryFlippedByteAndEveryLostPackIsMended) {
  std::unique_ptr<MemoryStorage> here = remote();
  std::map<PackId, Bytes>& packs = here->packs;
  const std::map<PackId, Bytes> good = packs;
  const std::unique_ptr<Store> store =
      Store::open(std::make_unique<TieredStorage>(std::move(here), remote()), index_path(), {}).value();
  const auto expect_all_there = [&](const PackId& id, size_t at) {
    ASSERT_TRUE(reads_all(*store)) << "pack " << to_hex(id) << ", byte " << at;
    ASSERT_FALSE(HasFailure()) << "pack " << to_hex(id) << ", byte " << at;
  };
  size_t mended = 0;
  for (const auto& [id, content] : good) {
    for (size_t i = 0; i < content.size() && !HasFailure(); i++) {
      packs[id][i] ^= static_cast<std::byte>(1 << i % 8);
      expect_all_there(id, i);
      mended += packs[id] == content;
      packs[id] = content;
    }
    for (size_t length = 0; length < content.size(); length += 777) {
      packs[id].resize(length);
      expect_all_there(id, length);
      packs[id] = content;
    }
    packs.erase(id);
    expect_all_there(id, 0);
    packs[id] = content;
  }
  EXPECT_GT(mended, kBlockBytes);  // the frames; what is not read is not missed
}

// SQLite's files have bytes that nobody uses: a flip there is harmless, and not told.
TEST_F(CorruptionTest, DamageOfTheIndexIsToldOrHarmlessAndNoReplyIsWrong) {
  const std::string& good = files_.at(index_path());
  const auto used = [&](size_t i) { return good[i] != 0 || i % 64 == 0; };
  const auto is_told = [&](const std::string& damage) {
    const Seen seen = look_opening();
    ASSERT_TRUE(!seen.problems.empty() || seen.all_there) << damage;
    ASSERT_FALSE(HasFailure()) << damage;
    expect_others_untouched(index_path());
    restore();
  };
  for_each_flip(index_path(), used, is_told);
  for_each_loss(index_path(), is_told);
}

TEST_F(CorruptionTest, WhateverHappenedToTheIndexItComesBackFromThePacks) {
  for_each_loss(index_path(), [&](const std::string& damage) {
    const std::unique_ptr<PackStorage> packs = DirectoryStorage::open(directory_.path + "/packs").value();
    ASSERT_TRUE(rebuild_index(*packs, index_path())) << damage;
    const std::unique_ptr<Store> store = Store::open(remote(), index_path(), {}).value();
    const Seen seen = look(*store);
    EXPECT_TRUE(seen.all_there && seen.problems.empty()) << damage << seen.problems;
  });
}

}  // namespace
}  // namespace ramet::chunk
