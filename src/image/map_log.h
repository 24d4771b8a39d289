// image/map_log.h - reading and appending an overlay's map log. What the bytes are: map_log_format.h, docs/formats/overlay.md.
//
// Replay trusts nothing: it stops at the first record with a wrong checksum, sequence or range, so a torn append is the end of
// the log. Appends go to the known end by offset, and a failed one is cut off again, so that nothing stale can follow a later
// record. Thread: MapLogWriter is guarded by its owner (the overlay stack's state mutex). The file is borrowed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "image/file.h"
#include "image/map_log_format.h"

namespace ramet::image {

// What one pass over a log found.
struct MapLogScan {
  bool has_header = false;  // false: never written (or only by a freeze that the host forgot): an empty overlay
  MapLogHeader header;
  uint64_t records = 0;          // valid ones
  uint64_t durable_records = 0;  // of these, the ones that are not tentative
  uint64_t end_offset = kMapLogRecordsStart;
  uint64_t next_sequence = 1;
  bool sealed = false;                 // the last record is a kSeal
  std::vector<uint64_t> lower_synced;  // ids of lower overlays that this one found durable

  // As if the log ended before its tentative records.
  void forget_tentative();
};

// Errors: kCorrupt (header unreadable though records exist, or it is for another disk size), kIo.
Result<MapLogScan> scan_map_log(const File& file, uint64_t disk_blocks);

// Calls visit for the first `records` records of a scanned log.   Errors: kIo, kCorrupt when the file changed since.
Status visit_map_log(const File& file, const MapLogScan& scan, uint64_t records,
                     const std::function<void(const MapRecord&)>& visit);

// Never 0.
uint64_t random_overlay_id();

class MapLogWriter {
 public:
  // A new log (scan.has_header false) gets the id given; an old one goes on after its last valid record.
  // Errors: kIo when the torn end of an old log cannot be cut off.
  static Result<MapLogWriter> begin(File& file, const MapLogScan& scan, uint64_t disk_blocks, uint64_t overlay_id);

  uint64_t overlay_id() const { return header_.overlay_id; }
  bool has_header() const { return header_written_; }
  // Writes the header if it is not there yet. It must be durable before records are, except at a freeze.
  Status write_header();
  // Appends records (their sequence is filled in here) by one write.   Errors: kNoSpace, kIo; the log is then as before.
  Status append(std::span<const MapRecord> records);
  uint64_t size_bytes() const { return end_; }

 private:
  MapLogWriter(File& file, const MapLogHeader& header) : file_(&file), header_(header) {}
  File* file_;
  MapLogHeader header_;
  bool header_written_ = false;
  bool failed_ = false;  // a torn append could not be cut off
  uint64_t end_ = kMapLogRecordsStart;
  uint64_t next_sequence_ = 1;
};

}  // namespace ramet::image
