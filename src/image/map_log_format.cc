#include "image/map_log_format.h"

#include <cstring>

#include "base/crc32c.h"

namespace ramet::image {
namespace {

struct RawHeader {
  char magic[8];
  le32 version;
  le32 header_bytes;
  le64 overlay_id;
  le64 disk_blocks;
  le64 generation;
  le64 records_offset;
  le64 first_sequence;
  le32 reserved;
  le32 crc;  // CRC-32C of all before
};
static_assert(sizeof(RawHeader) == kMapLogHeaderBytes);

struct RawRecord {
  le32 crc;  // CRC-32C of all after
  le32 kind;
  le64 sequence;
  le64 first;
  le64 count;
};
static_assert(sizeof(RawRecord) == kMapRecordBytes);

constexpr char kMagic[8] = {'R', 'M', 'T', 'O', 'V', 'L', 'O', 'G'};

uint32_t header_crc(const RawHeader& raw) { return crc32c(&raw, offsetof(RawHeader, crc)); }
uint32_t record_crc(const RawRecord& raw) {
  return crc32c(reinterpret_cast<const char*>(&raw) + sizeof raw.crc, sizeof raw - sizeof raw.crc);
}

}  // namespace

std::array<std::byte, kMapLogHeaderBytes> encode_header(const MapLogHeader& header) {
  RawHeader raw{};
  std::memcpy(raw.magic, kMagic, sizeof kMagic);
  raw.version = kMapLogVersion;
  raw.header_bytes = static_cast<uint32_t>(sizeof raw);
  raw.overlay_id = header.overlay_id;
  raw.disk_blocks = header.disk_blocks;
  raw.generation = header.generation;
  raw.records_offset = header.records_offset;
  raw.first_sequence = header.first_sequence;
  raw.crc = header_crc(raw);
  std::array<std::byte, kMapLogHeaderBytes> out;
  std::memcpy(out.data(), &raw, sizeof raw);
  return out;
}

std::optional<MapLogHeader> decode_header(std::span<const std::byte, kMapLogHeaderBytes> bytes) {
  RawHeader raw;
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (std::memcmp(raw.magic, kMagic, sizeof kMagic) != 0 || raw.version != kMapLogVersion || raw.header_bytes != sizeof raw ||
      raw.crc != header_crc(raw))
    return std::nullopt;
  const MapLogHeader header{raw.overlay_id, raw.disk_blocks, raw.generation, raw.records_offset, raw.first_sequence};
  const bool possible = header.disk_blocks <= kMaxDiskBlocks && header.records_offset >= kMapLogRecordsStart &&
                        header.records_offset <= kMapLogRecordsEnd && header.records_offset % kMapRecordBytes == 0 &&
                        header.first_sequence != 0;
  if (!possible) return std::nullopt;
  return header;
}

std::array<std::byte, kMapRecordBytes> encode_record(const MapRecord& record) {
  RawRecord raw{};
  raw.kind = static_cast<uint32_t>(record.kind);
  raw.sequence = record.sequence;
  raw.first = record.first;
  raw.count = record.count;
  raw.crc = record_crc(raw);
  std::array<std::byte, kMapRecordBytes> out;
  std::memcpy(out.data(), &raw, sizeof raw);
  return out;
}

std::optional<MapRecord> decode_record(std::span<const std::byte, kMapRecordBytes> bytes, uint64_t disk_blocks) {
  RawRecord raw;
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (raw.crc != record_crc(raw)) return std::nullopt;
  const MapRecord record{static_cast<RecordKind>(static_cast<uint32_t>(raw.kind)), raw.sequence, raw.first, raw.count};
  switch (record.kind) {
    case RecordKind::kData:
    case RecordKind::kZero:
      if (record.count == 0 || !range_fits(record.range(), disk_blocks)) return std::nullopt;
      return record;
    case RecordKind::kFreeze:
    case RecordKind::kSeal:
    case RecordKind::kLowerSynced: return record;
  }
  return std::nullopt;
}

}  // namespace ramet::image
