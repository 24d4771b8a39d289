// image/map_log_format.h - bytes of an overlay's map log (docs/formats/overlay.md): two header slots, then records of 32 bytes.
// Pure: no I/O, no allocation. Thread: stateless.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/endian.h"
#include "image/block.h"

namespace ramet::image {

inline constexpr uint32_t kMapLogVersion = 1;
inline constexpr uint64_t kMapLogSlotBytes = 4096;                     // header slot i lies at i * 4096
inline constexpr uint64_t kMapLogRecordsStart = 2 * kMapLogSlotBytes;  // records begin here or later,
inline constexpr uint64_t kMapLogRecordsEnd = 1ull << 50;              // but not behind this: no file is so long

struct MapLogHeader {
  uint64_t overlay_id = 0;  // random; how later overlays name this one
  uint64_t disk_blocks = 0;
  uint64_t generation = 1;  // the valid slot with the higher one counts
  uint64_t records_offset = kMapLogRecordsStart;
  uint64_t first_sequence = 1;  // of the record at records_offset
  friend bool operator==(const MapLogHeader&, const MapLogHeader&) = default;
};

enum class RecordKind : uint32_t {
  kData = 1,    // blocks lie in the data file; they were durable before this record was written, unless it is tentative
  kZero = 2,    // blocks read as zero
  kFreeze = 3,  // what follows was written at a freeze, without a sync: tentative until a kSeal, or a kLowerSynced elsewhere
  kSeal = 4,    // data and records before are durable
  kLowerSynced = 5,  // `first` = id of a lower, frozen overlay that is durable in full
};

struct MapRecord {
  RecordKind kind = RecordKind::kData;
  uint64_t sequence = 0;
  uint64_t first = 0;
  uint64_t count = 0;
  BlockRange range() const { return {first, count}; }
  friend bool operator==(const MapRecord&, const MapRecord&) = default;
};

inline constexpr size_t kMapLogHeaderBytes = 64;
inline constexpr size_t kMapRecordBytes = 32;

std::array<std::byte, kMapLogHeaderBytes> encode_header(const MapLogHeader& header);
// nullopt: wrong magic, version, checksum, or numbers that cannot be.
std::optional<MapLogHeader> decode_header(std::span<const std::byte, kMapLogHeaderBytes> bytes);

std::array<std::byte, kMapRecordBytes> encode_record(const MapRecord& record);
// nullopt: wrong checksum, unknown kind, or a range that is empty or not on the disk.
std::optional<MapRecord> decode_record(std::span<const std::byte, kMapRecordBytes> bytes, uint64_t disk_blocks);

}  // namespace ramet::image
