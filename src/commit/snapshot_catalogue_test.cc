// Snapshots: their bytes, by id, and that what they name is kept.
#include "commit/snapshot_catalogue.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/testing/small_disk.h"
#include "chunk/testing/store_fixture.h"
#include "commit/live_chunks.h"
#include "commit/raw_image.h"
#include "commit/stored_bytes.h"
#include "commit/usage.h"

namespace ramet::commit {
namespace {

using chunk::testing::noise;
using ::testing::ElementsAre;

Digest filled_with(uint8_t first) {
  Digest d;
  for (size_t i = 0; i < d.bytes.size(); i++) d.bytes[i] = static_cast<std::byte>(first + i);
  return d;
}
// That of the golden file.
SnapshotRecord sample() {
  return {.details = R"({"name":"before the migration"})",
          .disk = {image::ImageKind::kDisk, 600 * 4096 + 5, {filled_with(0), image::kZeros, filled_with(32)}},
          .machine = SnapshotMachine{.memory = {image::ImageKind::kMemory, 300 * 128, {filled_with(64), filled_with(96)}},
                                     .vmstate = {image::ImageKind::kMemory, 3, {filled_with(128)}},
                                     .vmstate_bytes = 8193}};
}

TEST(SnapshotRecord, GoldenFileIsReadAndWritten) {
  const std::string bytes = read_file(std::string(RAMET_GOLDEN_DIR) + "/snapshot_v1.bin").value();
  EXPECT_EQ(decode_snapshot(as_bytes(bytes)).value(), sample());
  EXPECT_EQ(encode_snapshot(sample()).value(), bytes);
}

TEST(SnapshotRecord, SurvivesARoundTripAndTellsEveryDamage) {
  SnapshotRecord disk_alone = sample();
  disk_alone.machine.reset();
  for (const SnapshotRecord& record : {sample(), disk_alone}) {
    std::string bytes = encode_snapshot(record).value();
    EXPECT_EQ(decode_snapshot(as_bytes(bytes)).value(), record);
    for (size_t i = 0; i < bytes.size(); i++) {
      bytes[i] ^= 1;
      EXPECT_FALSE(decode_snapshot(as_bytes(bytes))) << i;
      bytes[i] ^= 1;
    }
    for (size_t length = 0; length < bytes.size(); length++) EXPECT_FALSE(decode_snapshot(as_bytes(bytes).first(length)));
    EXPECT_FALSE(decode_snapshot(as_bytes(bytes + " ")));
  }
}

TEST(SnapshotRecord, WhatCannotBeASnapshotIsNotWritten) {
  const auto kind_of = [](const auto& change) {
    SnapshotRecord record = sample();
    change(record);
    const Result<std::string> bytes = encode_snapshot(record);
    return bytes ? ErrorKind::kInternal : bytes.error().kind();
  };
  EXPECT_EQ(kind_of([](SnapshotRecord& r) { r.details.resize(kMaxSnapshotDetails + 1); }), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of([](SnapshotRecord& r) { r.disk.kind = image::ImageKind::kMemory; }), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of([](SnapshotRecord& r) { r.machine->memory.kind = image::ImageKind::kDisk; }), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of([](SnapshotRecord& r) { r.machine->vmstate.kind = image::ImageKind::kDisk; }), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of([](SnapshotRecord& r) { r.machine->vmstate_bytes = 8192; }), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of([](SnapshotRecord& r) { r.machine->vmstate_bytes = 12289; }), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of([](SnapshotRecord& r) { r.machine->vmstate_bytes = 0; }), ErrorKind::kInvalid);
  EXPECT_EQ(kind_of([](SnapshotRecord& r) { r.machine->vmstate_bytes = ~uint64_t{0}; }), ErrorKind::kInvalid);
}

// What an attacker would write: numbers that do not go together, under right checksums.
TEST(SnapshotRecord, OneThatContradictsItselfIsRefused) {
  const std::string good = encode_snapshot(sample()).value();
  const auto with = [&](size_t offset, uint64_t value, size_t size) {
    std::string bytes = good;
    bytes.replace(offset, size, reinterpret_cast<const char*>(&value), size);
    const uint32_t crc = crc32c(bytes.data(), 60);
    bytes.replace(60, 4, reinterpret_cast<const char*>(&crc), 4);
    return decode_snapshot(as_bytes(bytes));
  };
  EXPECT_TRUE(with(8, 1, 4));
  EXPECT_EQ(with(8, 2, 4).error().kind(), ErrorKind::kUnsupported);
  EXPECT_FALSE(with(12, 65, 4));           // header_bytes
  EXPECT_FALSE(with(16, 0xffffffffu, 4));  // details_bytes: the sum would wrap
  EXPECT_FALSE(with(16, 30, 4));
  EXPECT_FALSE(with(24, 0, 4));  // memory_bytes
  EXPECT_FALSE(with(32, 0, 8));  // vmstate_bytes
  EXPECT_FALSE(with(32, 8192, 8));
  EXPECT_FALSE(with(40, 1, 1));  // reserved
}

class SnapshotCatalogueTest : public chunk::testing::StoreFixture {
 protected:
  std::string path() const { return directory_.path + "/snapshots"; }
  SnapshotCatalogue snapshots_ = SnapshotCatalogue::open(directory_.path + "/snapshots").value();
};

TEST_F(SnapshotCatalogueTest, GivesBackWhatWasAdded) {
  ASSERT_TRUE(snapshots_.add("snap-2", sample()));
  ASSERT_TRUE(snapshots_.add("a", sample()));
  EXPECT_EQ(snapshots_.add("a", sample()).error().kind(), ErrorKind::kExists);
  const SnapshotCatalogue again = SnapshotCatalogue::open(path()).value();
  EXPECT_EQ(again.get("snap-2").value(), sample());
  EXPECT_THAT(again.ids().value(), ElementsAre("a", "snap-2"));
  EXPECT_EQ(again.get("b").error().kind(), ErrorKind::kNotFound);
}

TEST_F(SnapshotCatalogueTest, DetailsChangeAloneAndAsAWhole) {
  ASSERT_TRUE(snapshots_.add("a", sample()));
  ASSERT_TRUE(snapshots_.replace_details("a", "{}"));
  SnapshotRecord expected = sample();
  expected.details = "{}";
  EXPECT_EQ(snapshots_.get("a").value(), expected);
  EXPECT_EQ(snapshots_.replace_details("a", std::string(kMaxSnapshotDetails + 1, 'x')).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(snapshots_.get("a").value(), expected);
  EXPECT_EQ(snapshots_.replace_details("b", "{}").error().kind(), ErrorKind::kNotFound);
  EXPECT_THAT(snapshots_.ids().value(), ElementsAre("a"));
}

TEST_F(SnapshotCatalogueTest, WhatWasRemovedIsGoneAlsoIfItIsDamaged) {
  ASSERT_TRUE(snapshots_.add("a", sample()));
  ASSERT_TRUE(snapshots_.add("b", sample()));
  std::ofstream(path() + "/a.snapshot") << "half";
  std::ofstream(path() + "/a.snapshot.tmp.12") << "half";
  EXPECT_EQ(snapshots_.get("a").error().kind(), ErrorKind::kCorrupt);
  EXPECT_TRUE(snapshots_.remove("a"));
  EXPECT_EQ(snapshots_.remove("a").error().kind(), ErrorKind::kNotFound);
  EXPECT_THAT(snapshots_.ids().value(), ElementsAre("b"));
}

TEST_F(SnapshotCatalogueTest, IdsCannotLeaveTheDirectory) {
  for (const char* bad : {"", ".", "..", "../a", "a/b", ".hidden", "-x", "a b"}) {
    EXPECT_EQ(snapshots_.add(bad, sample()).error().kind(), ErrorKind::kInvalid) << bad;
    EXPECT_EQ(snapshots_.get(bad).error().kind(), ErrorKind::kInvalid) << bad;
    EXPECT_EQ(snapshots_.remove(bad).error().kind(), ErrorKind::kInvalid) << bad;
  }
}

TEST_F(SnapshotCatalogueTest, OnAFullDiskRecordsStayAsTheyAreAndCanGo) {
  ramet::testing::on_a_small_disk(directory_.path + "/small", 1u << 20, [](ramet::testing::SmallDisk& disk) {
    SnapshotCatalogue full = SnapshotCatalogue::open(disk.path() + "/snapshots").value();
    ASSERT_TRUE(full.add("a", sample()));
    const std::set<std::string> files = disk.files();
    disk.fill();
    EXPECT_EQ(full.add("b", sample()).error().kind(), ErrorKind::kNoSpace);
    EXPECT_EQ(full.replace_details("a", std::string(8192, 'x')).error().kind(), ErrorKind::kNoSpace);
    EXPECT_EQ(disk.files(), files);
    EXPECT_EQ(full.get("a").value(), sample());
    EXPECT_TRUE(full.remove("a"));
    EXPECT_TRUE(full.add("b", sample())) << "there is room again";
  });
}

TEST_F(SnapshotCatalogueTest, BytesComeBackAsLongAsTheyWere) {
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{4097}, size_t{512} << 10, (size_t{3} << 20) + 5}) {
    const chunk::testing::Bytes bytes = noise(size, size);
    chunk::Batch batch = store_->begin();
    const image::ManifestRoot root = put_bytes(batch, bytes).value();
    ASSERT_TRUE(batch.commit());
    EXPECT_EQ(root.blocks, (size + 4095) / 4096);
    EXPECT_EQ(get_bytes(*store_, root, size).value(), bytes);
    EXPECT_EQ(get_bytes(*store_, root, size + 4096).error().kind(), ErrorKind::kInvalid);
  }
  chunk::Batch batch = store_->begin();
  EXPECT_EQ(put_bytes(batch, {}).error().kind(), ErrorKind::kInvalid);
  const image::ManifestRoot zeros = put_bytes(batch, chunk::testing::Bytes(9000)).value();
  EXPECT_EQ(get_bytes(*store_, zeros, 9000).value(), chunk::testing::Bytes(9000));
}

TEST_F(SnapshotCatalogueTest, WhatASnapshotNamesIsKeptUntilItIsRemoved) {
  const UniqueFd raw = make_memfd("raw", 1 << 20).value();
  ASSERT_TRUE(pwrite_all(raw.get(), noise(1 << 20, 1), 0));
  SnapshotRecord record{.machine = SnapshotMachine{.vmstate_bytes = 70'000}};
  {
    chunk::Batch batch = store_->begin();
    record.disk = import_raw(raw.get(), batch, nullptr).value();
    record.machine->memory = put_bytes(batch, noise(2 << 20, 2)).value();
    record.machine->vmstate = put_bytes(batch, noise(70'000, 3)).value();
    ASSERT_TRUE(batch.commit());
    ASSERT_TRUE(snapshots_.add("a", record));
  }
  const auto collected = [&] { return store_->collect([&] { return live_chunks(*store_, {}, &snapshots_); }); };
  EXPECT_EQ(collected()->chunks_removed, 0u);
  EXPECT_EQ(get_bytes(*store_, record.machine->vmstate, 70'000).value(), noise(70'000, 3));
  EXPECT_EQ(get_bytes(*store_, record.machine->memory, 2 << 20).value(), noise(2 << 20, 2));
  EXPECT_TRUE(store_->get(manifest_in(*store_, record.disk).chunk(0).value()));

  const Usage usage = usage_of(*store_, {}, &snapshots_).value();
  EXPECT_EQ(usage.snapshots, 1u);
  EXPECT_EQ(usage.dead_bytes, 0u);
  EXPECT_EQ(usage.shared_bytes, 0u) << "its own parts are one";
  EXPECT_EQ(usage.logical_bytes, (1u << 20) + (2u << 20) + 73'728);

  ASSERT_TRUE(snapshots_.remove("a"));
  EXPECT_GT(collected()->chunks_removed, 3u);
  EXPECT_EQ(stored_bytes(), 0u);
}

TEST_F(SnapshotCatalogueTest, OneThatCannotBeReadStopsCollections) {
  ASSERT_TRUE(snapshots_.add("a", sample()));
  std::ofstream(path() + "/a.snapshot") << "half";
  EXPECT_EQ(store_->collect([&] { return live_chunks(*store_, {}, &snapshots_); }).error().kind(), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace ramet::commit
