// What verify and rebuild_index report. That no damage at all escapes them: corruption_test.cc.
#include "chunk/maintenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/file.h"
#include "chunk/directory_storage.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk {
namespace {

using testing::TemporaryDirectory;
using Bytes = std::vector<std::byte>;

// Half noise, half text, with zeros between.
Bytes chunk_number(uint64_t n) {
  Bytes out(6 * kBlockBytes);
  std::mt19937_64 random(n);
  for (size_t i = 0; i < 2 * kBlockBytes; i++) out[i] = static_cast<std::byte>(random());
  for (size_t i = 4 * kBlockBytes; i < out.size(); i++) out[i] = static_cast<std::byte>("warm state "[(i + n) % 11]);
  out[4 * kBlockBytes] = out[5 * kBlockBytes] = static_cast<std::byte>(n);  // no two chunks share a block
  return out;
}

class MaintenanceTest : public ::testing::Test {
 protected:
  MaintenanceTest() {
    open();
    for (uint64_t n = 0; n < 3; n++) {
      Batch batch = store_->begin();
      EXPECT_TRUE(batch.put(chunk_number(n)));
      EXPECT_TRUE(batch.put(chunk_number(n + 100)));
      EXPECT_TRUE(batch.commit());
    }
  }
  void open() {
    store_.reset();
    store_ = Store::open(DirectoryStorage::open(packs_path()).value(), index_path(), {}).value();
  }
  void expect_all_there() const {
    for (uint64_t n = 0; n < 3; n++)
      for (const uint64_t m : {n, n + 100}) EXPECT_EQ(store_->get(digest_of(chunk_number(m))).value(), chunk_number(m));
  }
  std::vector<std::string> pack_files() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(packs_path()))
      if (entry.path().extension() == ".pack") out.push_back(entry.path());
    return out;
  }
  std::string packs_path() const { return directory_.path + "/packs"; }
  std::string index_path() const { return directory_.path + "/index.db"; }

  TemporaryDirectory directory_;
  std::unique_ptr<Store> store_;
};

TEST_F(MaintenanceTest, AWholeStoreHasNoProblems) {
  uint64_t told = 0;
  const VerifyReport report = verify(*store_, [&](const Progress& p) {
                                told++;
                                EXPECT_EQ(p.total, 3u + 6u);
                              }).value();
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.packs, 3u);
  EXPECT_GE(report.frames, 3u);
  EXPECT_EQ(report.chunks, 6u);
  EXPECT_EQ(told, 9u);
}

TEST_F(MaintenanceTest, PacksThatAreCutOrGoneAreNamed) {
  for (const std::string& path : pack_files()) {
    const std::string good = read_file(path).value(), name = std::filesystem::path(path).stem();
    for (const size_t length : {size_t{0}, size_t{100}, size_t{4096}, good.size() - 1}) {
      std::filesystem::resize_file(path, length);
      EXPECT_THAT(verify(*store_)->problems.front().where, ::testing::HasSubstr(name)) << length;
      std::ofstream(path, std::ios::binary) << good;
    }
    std::filesystem::remove(path);
    const VerifyReport report = verify(*store_).value();
    EXPECT_THAT(report.problems.front().where, ::testing::HasSubstr(name));
    EXPECT_EQ(report.problems.size(), 3u);  // and its two chunks
    std::ofstream(path, std::ios::binary) << good;
  }
  EXPECT_TRUE(verify(*store_)->problems.empty());
}

TEST_F(MaintenanceTest, TheIndexComesBackFromThePacksAlone) {
  store_.reset();
  std::filesystem::remove(index_path());
  const RebuildReport report = rebuild_index(*DirectoryStorage::open(packs_path()).value(), index_path()).value();
  EXPECT_EQ(report.packs, 3u);
  EXPECT_TRUE(report.left_out.empty());
  open();
  expect_all_there();
  EXPECT_TRUE(verify(*store_)->problems.empty());
  // New frames do not take the numbers of old ones.
  Batch batch = store_->begin();
  const Digest digest = batch.put(chunk_number(50)).value().value();
  ASSERT_TRUE(batch.commit());
  EXPECT_EQ(store_->get(digest).value(), chunk_number(50));
  expect_all_there();
}

TEST_F(MaintenanceTest, RebuildingReplacesADamagedIndexAndNamesDamagedPacks) {
  store_.reset();
  std::ofstream(index_path(), std::ios::binary) << "not a database at all, not a database at all";
  EXPECT_FALSE(Store::open(DirectoryStorage::open(packs_path()).value(), index_path(), {}));
  EXPECT_EQ(pack_files().size(), 3u) << "opening took packs away";
  const std::string lost = pack_files().front();
  std::filesystem::resize_file(lost, 4096);
  const RebuildReport report = rebuild_index(*DirectoryStorage::open(packs_path()).value(), index_path()).value();
  EXPECT_EQ(report.packs, 2u);
  ASSERT_EQ(report.left_out.size(), 1u);
  EXPECT_THAT(report.left_out[0].where, ::testing::HasSubstr(std::filesystem::path(lost).stem()));
  open();
  const VerifyReport after = verify(*store_).value();
  ASSERT_EQ(after.problems.size(), 1u);  // it is still there, and nobody knows it
  EXPECT_EQ(after.problems[0].where, "pack " + std::filesystem::path(lost).stem().string());
  EXPECT_EQ(store_->totals()->chunks, 4u);
}

}  // namespace
}  // namespace ramet::chunk
