// chunk/testing/store_fixture.h - a store in a directory of its own, opened again at will. Thread: as the store.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "chunk/directory_storage.h"
#include "chunk/store.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk::testing {

class StoreFixture : public ::testing::Test {
 protected:
  void SetUp() override { reopen(); }
  void reopen() {
    store_.reset();
    Result<std::unique_ptr<Store>> opened = Store::open(DirectoryStorage::open(packs_path()).value(), index_path(), {});
    ASSERT_TRUE(opened) << opened.error().to_string();
    store_ = *std::move(opened);
  }
  Digest put(const Bytes& chunk, const std::optional<Digest>& parent = std::nullopt) {
    Batch batch = store_->begin();
    const Digest digest = batch.put(chunk, parent).value().value();
    EXPECT_TRUE(batch.commit());
    return digest;
  }
  Result<Store::Collected> collect(const std::unordered_set<Digest, DigestHash>& live) {
    return store_->collect([&]() -> Result<Store::LiveSet> { return Store::LiveSet{live}; });
  }
  uint64_t stored_bytes() const { return store_->totals()->pack_bytes; }
  // Whatever they are called: everything but the lock.
  size_t pack_files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(packs_path()), {})) - 1;
  }
  std::string packs_path() const { return directory_.path + "/packs"; }
  std::string index_path() const { return directory_.path + "/index.db"; }

  TemporaryDirectory directory_;
  std::unique_ptr<Store> store_;
};

}  // namespace ramet::chunk::testing
