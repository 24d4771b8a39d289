#include "image/map_log.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <optional>

namespace ramet::image {
namespace {

constexpr size_t kBatchRecords = 2048;

// Reads records one after another through a buffer.
class RecordReader {
 public:
  RecordReader(const File& file, uint64_t offset, uint64_t end) : file_(file), offset_(offset), end_(end) {}

  // nullopt at the end of the file.
  Result<std::optional<std::span<const std::byte, kMapRecordBytes>>> next() {
    if (at_ == filled_) {
      const uint64_t left = (end_ - offset_) / kMapRecordBytes;
      filled_ = static_cast<size_t>(std::min<uint64_t>(left, kBatchRecords)) * kMapRecordBytes;
      at_ = 0;
      if (filled_ == 0) return std::nullopt;
      buffer_.resize(kBatchRecords * kMapRecordBytes);
      TRY(read_all(file_, offset_, std::span(buffer_).first(filled_)));
      offset_ += filled_;
    }
    const std::span<const std::byte, kMapRecordBytes> record(buffer_.data() + at_, kMapRecordBytes);
    at_ += kMapRecordBytes;
    return record;
  }

 private:
  const File& file_;
  uint64_t offset_;
  uint64_t end_;
  std::vector<std::byte> buffer_;
  size_t at_ = 0, filled_ = 0;
};

Result<std::optional<MapLogHeader>> read_header(const File& file, uint64_t size) {
  std::optional<MapLogHeader> best;
  for (uint64_t slot = 0; slot < 2; slot++) {
    std::array<std::byte, kMapLogHeaderBytes> bytes;
    if (!range_within(slot * kMapLogSlotBytes, bytes.size(), size)) continue;
    TRY(read_all(file, slot * kMapLogSlotBytes, bytes));
    const std::optional<MapLogHeader> header = decode_header(bytes);
    if (header && (!best || header->generation > best->generation)) best = header;
  }
  return best;
}

// A header is durable before any record is, unless the records were written by a freeze. So a log without a header holds
// nothing that was ever flushed, if it begins with a freeze or with no record at all.
Status check_headerless(const File& file, uint64_t size) {
  RecordReader reader(file, kMapLogRecordsStart, std::max(size, kMapLogRecordsStart));
  TRY_ASSIGN(const auto bytes, reader.next());
  if (!bytes) return {};
  const std::optional<MapRecord> record = decode_record(*bytes, kMaxDiskBlocks);
  if (!record || record->kind == RecordKind::kFreeze) return {};
  return fail(ErrorKind::kCorrupt, "map log has records but no valid header");
}

}  // namespace

uint64_t random_overlay_id() {
  uint64_t id = 0;
  while (id == 0)
    if (::getrandom(&id, sizeof id, 0) != sizeof id) id = 0;
  return id;
}

void MapLogScan::forget_tentative() {
  records = durable_records;
  end_offset = header.records_offset + records * kMapRecordBytes;
  next_sequence = header.first_sequence + records;
}

Result<MapLogScan> scan_map_log(const File& file, uint64_t disk_blocks) {
  MapLogScan scan;
  TRY_ASSIGN(const uint64_t size, file.size());
  TRY_ASSIGN(const std::optional<MapLogHeader> header, read_header(file, size));
  if (!header) {
    TRY(check_headerless(file, size));
    return scan;
  }
  if (header->disk_blocks != disk_blocks)
    return fail(ErrorKind::kCorrupt, "map log is of a disk of " + std::to_string(header->disk_blocks) + " blocks, not " +
                                         std::to_string(disk_blocks));
  scan.has_header = true;
  scan.header = *header;
  scan.end_offset = header->records_offset;
  scan.next_sequence = header->first_sequence;
  RecordReader reader(file, header->records_offset, std::max(size, header->records_offset));
  bool tentative = false;
  for (;;) {
    TRY_ASSIGN(const auto bytes, reader.next());
    if (!bytes) break;
    const std::optional<MapRecord> record = decode_record(*bytes, disk_blocks);
    if (!record || record->sequence != scan.next_sequence) break;
    scan.records++;
    scan.end_offset += kMapRecordBytes;
    scan.next_sequence++;
    scan.sealed = record->kind == RecordKind::kSeal;
    if (record->kind == RecordKind::kFreeze) tentative = true;
    if (record->kind == RecordKind::kSeal) tentative = false;
    if (record->kind == RecordKind::kLowerSynced && !tentative) scan.lower_synced.push_back(record->first);
    if (!tentative) scan.durable_records = scan.records;
  }
  return scan;
}

Status visit_map_log(const File& file, const MapLogScan& scan, uint64_t records,
                     const std::function<void(const MapRecord&)>& visit) {
  RecordReader reader(file, scan.header.records_offset, scan.end_offset);
  for (uint64_t i = 0; i < records; i++) {
    TRY_ASSIGN(const auto bytes, reader.next());
    const std::optional<MapRecord> record = bytes ? decode_record(*bytes, scan.header.disk_blocks) : std::nullopt;
    if (!record) return fail(ErrorKind::kCorrupt, "map log changed while it was read");
    visit(*record);
  }
  return {};
}

Result<MapLogWriter> MapLogWriter::begin(File& file, const MapLogScan& scan, uint64_t disk_blocks, uint64_t overlay_id) {
  MapLogHeader header = scan.header;
  if (!scan.has_header) header = {.overlay_id = overlay_id, .disk_blocks = disk_blocks};
  MapLogWriter writer(file, header);
  writer.header_written_ = scan.has_header;
  writer.end_ = scan.end_offset;
  writer.next_sequence_ = scan.next_sequence;
  TRY_ASSIGN(const uint64_t size, file.size());
  if (size > writer.end_ || (size > 0 && !scan.has_header)) TRY(file.resize(scan.has_header ? writer.end_ : 0));
  return writer;
}

Status MapLogWriter::write_header() {
  if (header_written_) return {};
  TRY(write_all(*file_, (header_.generation % 2 == 1 ? 0 : 1) * kMapLogSlotBytes, encode_header(header_)));
  header_written_ = true;
  return {};
}

Status MapLogWriter::append(std::span<const MapRecord> records) {
  if (failed_) return fail(ErrorKind::kIo, "map log failed before");
  TRY(write_header());
  std::vector<std::byte> bytes(records.size() * kMapRecordBytes);
  for (size_t i = 0; i < records.size(); i++) {
    MapRecord record = records[i];
    record.sequence = next_sequence_ + i;
    const auto encoded = encode_record(record);
    std::copy(encoded.begin(), encoded.end(), bytes.begin() + static_cast<ptrdiff_t>(i * kMapRecordBytes));
  }
  if (Status written = write_all(*file_, end_, bytes); !written) {
    failed_ = !file_->resize(end_);
    return written;
  }
  end_ += bytes.size();
  next_sequence_ += records.size();
  return {};
}

}  // namespace ramet::image
