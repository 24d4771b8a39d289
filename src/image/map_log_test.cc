#include "image/map_log.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "image/testing/crash_file.h"

namespace ramet::image {
namespace {

using testing::CrashFile;
using testing::CrashInode;

constexpr uint64_t kBlocks = 10000;

MapRecord data(uint64_t first, uint64_t count) { return {.kind = RecordKind::kData, .first = first, .count = count}; }
MapRecord of(RecordKind kind) { return {.kind = kind}; }

struct Log {
  std::shared_ptr<CrashInode> inode = std::make_shared<CrashInode>();
  CrashFile file{inode, true};
  MapLogScan scan() { return scan_map_log(file, kBlocks).value(); }
  MapLogWriter writer() { return MapLogWriter::begin(file, scan(), kBlocks, 77).value(); }
  std::vector<MapRecord> read() {
    const MapLogScan s = scan();
    std::vector<MapRecord> out;
    EXPECT_TRUE(visit_map_log(file, s, s.records, [&](const MapRecord& r) { out.push_back(r); }));
    return out;
  }
};

TEST(MapLogFormat, HeaderSurvivesTheRoundTrip) {
  const MapLogHeader header{
      .overlay_id = 5, .disk_blocks = 6, .generation = 3, .records_offset = 8192 + 64, .first_sequence = 9};
  EXPECT_EQ(decode_header(encode_header(header)), header);
}

TEST(MapLogFormat, EveryFlippedBitOfAHeaderIsSeen) {
  const auto good = encode_header({.overlay_id = 5, .disk_blocks = 6});
  for (size_t bit = 0; bit < good.size() * 8; bit++) {
    auto bad = good;
    bad[bit / 8] ^= std::byte(1u << (bit % 8));
    EXPECT_FALSE(decode_header(bad)) << bit;
  }
}

TEST(MapLogFormat, EveryFlippedBitOfARecordIsSeen) {
  const auto good = encode_record({RecordKind::kZero, 3, 4, 5});
  for (size_t bit = 0; bit < good.size() * 8; bit++) {
    auto bad = good;
    bad[bit / 8] ^= std::byte(1u << (bit % 8));
    EXPECT_FALSE(decode_record(bad, kBlocks)) << bit;
  }
}

TEST(MapLogFormat, RecordsOutsideOfTheDiskAreRefused) {
  EXPECT_TRUE(decode_record(encode_record({RecordKind::kData, 1, kBlocks - 1, 1}), kBlocks));
  EXPECT_FALSE(decode_record(encode_record({RecordKind::kData, 1, kBlocks, 1}), kBlocks));
  EXPECT_FALSE(decode_record(encode_record({RecordKind::kData, 1, 5, ~0ull}), kBlocks));
  EXPECT_FALSE(decode_record(encode_record({RecordKind::kData, 1, 5, 0}), kBlocks));
  EXPECT_FALSE(decode_record(encode_record({static_cast<RecordKind>(99), 1, 5, 1}), kBlocks));
}

TEST(MapLog, AnEmptyFileIsAnEmptyLog) {
  Log log;
  EXPECT_FALSE(log.scan().has_header);
  EXPECT_EQ(log.scan().records, 0u);
}

TEST(MapLog, ReplayGivesWhatWasAppended) {
  Log log;
  MapLogWriter writer = log.writer();
  const std::vector<MapRecord> records{data(1, 2), {.kind = RecordKind::kZero, .first = 7, .count = 1}};
  ASSERT_TRUE(writer.append(records));
  ASSERT_TRUE(writer.append(records));
  const std::vector<MapRecord> read = log.read();
  ASSERT_EQ(read.size(), 4u);
  EXPECT_EQ(read[3].sequence, 4u);
  EXPECT_EQ(read[3].range(), (BlockRange{7, 1}));
  EXPECT_EQ(log.scan().header.overlay_id, 77u);
}

TEST(MapLog, ReplayStopsAtTheFirstBadRecordAndTheNextWriterCutsTheRestOff) {
  Log log;
  MapLogWriter writer = log.writer();
  ASSERT_TRUE(writer.append(std::vector{data(1, 1), data(2, 1), data(3, 1)}));
  const std::byte garbage{0xff};
  log.inode->write(kMapLogRecordsStart + kMapRecordBytes + 9, {&garbage, 1});  // in the second record
  ASSERT_EQ(log.read().size(), 1u);
  MapLogWriter next = log.writer();
  ASSERT_TRUE(next.append(std::vector{data(9, 1)}));
  const std::vector<MapRecord> read = log.read();
  ASSERT_EQ(read.size(), 2u);  // the old third record has not come back
  EXPECT_EQ(read[1].first, 9u);
}

TEST(MapLog, AFailedAppendLeavesTheLogAsItWas) {
  Log log;
  MapLogWriter writer = log.writer();
  ASSERT_TRUE(writer.append(std::vector{data(1, 1)}));
  log.inode->writes_before_failure = 0;
  EXPECT_EQ(writer.append(std::vector{data(2, 1), data(3, 1), data(4, 1), data(5, 1)}).error().kind(), ErrorKind::kNoSpace);
  log.inode->writes_before_failure = -1;
  ASSERT_TRUE(writer.append(std::vector{data(6, 1)}));
  const std::vector<MapRecord> read = log.read();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].first, 6u);
}

TEST(MapLog, RecordsAfterAFreezeAreTentativeUntilASeal) {
  Log log;
  MapLogWriter writer = log.writer();
  ASSERT_TRUE(writer.append(std::vector{data(1, 1), of(RecordKind::kFreeze), data(2, 1)}));
  EXPECT_EQ(log.scan().durable_records, 1u);
  EXPECT_FALSE(log.scan().sealed);
  ASSERT_TRUE(writer.append(std::vector{of(RecordKind::kSeal)}));
  EXPECT_EQ(log.scan().durable_records, 4u);
  EXPECT_TRUE(log.scan().sealed);
}

TEST(MapLog, ALogOfAnotherDiskSizeIsRefused) {
  Log log;
  ASSERT_TRUE(log.writer().append(std::vector{data(1, 1)}));
  EXPECT_EQ(scan_map_log(log.file, kBlocks + 1).error().kind(), ErrorKind::kCorrupt);
}

TEST(MapLog, RecordsWithoutAHeaderAreCorruptUnlessAFreezeWroteThem) {
  Log log;
  ASSERT_TRUE(log.writer().append(std::vector{data(1, 1)}));
  log.inode->punch(0, kMapLogRecordsStart);
  EXPECT_EQ(scan_map_log(log.file, kBlocks).error().kind(), ErrorKind::kCorrupt);
  Log frozen;
  ASSERT_TRUE(frozen.writer().append(std::vector{of(RecordKind::kFreeze), data(1, 1)}));
  frozen.inode->punch(0, kMapLogRecordsStart);
  EXPECT_FALSE(frozen.scan().has_header);
}

// The bytes of version 1 stay readable: the golden file was written by the first implementation.
TEST(MapLog, ReadsTheGoldenFileOfVersion1) {
  const std::string path = std::string(RAMET_GOLDEN_DIR) + "/overlay_log_v1.bin";
  Result<UniqueFd> fd = open_file(path, O_RDONLY);
  ASSERT_TRUE(fd) << fd.error().to_string();
  const PosixFile file(std::move(*fd));
  const MapLogScan scan = scan_map_log(file, 262144).value();
  EXPECT_EQ(scan.header.overlay_id, 0x1122334455667788u);
  std::vector<MapRecord> read;
  ASSERT_TRUE(visit_map_log(file, scan, scan.records, [&](const MapRecord& r) { read.push_back(r); }));
  const std::vector<MapRecord> expected{
      {RecordKind::kData, 1, 0, 4096},   {RecordKind::kZero, 2, 100, 28}, {RecordKind::kLowerSynced, 3, 0x99, 0},
      {RecordKind::kData, 4, 262143, 1}, {RecordKind::kFreeze, 5, 0, 0},  {RecordKind::kData, 6, 100, 1},
      {RecordKind::kSeal, 7, 0, 0},
  };
  EXPECT_EQ(read, expected);
  EXPECT_TRUE(scan.sealed);
}

}  // namespace
}  // namespace ramet::image
