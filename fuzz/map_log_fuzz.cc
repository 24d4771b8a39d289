// Replay of an overlay's map log: raw bytes, and well-formed logs with damage. Whatever is in the file, replay ends, stays on
// the disk, and a writer that goes on after it is read back exactly.
#include <cstdlib>

#include "image/merge.h"
#include "image/testing/crash_file.h"
#include "input.h"

namespace {

using namespace ramet;
using namespace ramet::image;
using image::testing::CrashFile;
using image::testing::CrashOverlay;

constexpr uint64_t kBlocks = 2 * kChunkBlocks + 77;

void check(bool good) {
  if (!good) abort();
}

// Headers and records as the code writes them, with numbers of the input, then some bytes damaged.
void write_plausible(FuzzInput& in, CrashFile& file) {
  MapLogHeader header{.overlay_id = 1 + in.upto(3), .disk_blocks = in.rarely(20) ? in.number<uint64_t>() : kBlocks};
  header.first_sequence = in.rarely(10) ? in.number<uint64_t>() : 1;
  header.records_offset = in.rarely(10) ? in.number<uint64_t>() : kMapLogRecordsStart + 32ull * in.upto(3);
  header.generation = in.upto(2);
  check(write_all(file, in.upto(1) * kMapLogSlotBytes, encode_header(header)).has_value());
  uint64_t at = std::min<uint64_t>(header.records_offset, kMapLogRecordsStart + 4096);
  uint64_t sequence = header.first_sequence;
  while (!in.empty() && at < kMapLogRecordsStart + 16384) {
    MapRecord record{.kind = static_cast<RecordKind>(1 + in.upto(4)),
                     .sequence = in.rarely(30) ? in.number<uint64_t>() : sequence};
    record.first = in.rarely(20) ? in.number<uint64_t>() : in.upto(kBlocks);
    record.count = in.rarely(20) ? in.number<uint64_t>() : 1 + in.upto(600);
    check(write_all(file, at, encode_record(record)).has_value());
    at += kMapRecordBytes;
    sequence++;
    if (in.rarely(40)) {
      const std::byte noise{in.number<uint8_t>()};
      check(write_all(file, at - 1 - in.upto(63), {&noise, 1}).has_value());
    }
  }
}

std::optional<std::vector<MapRecord>> records_of(const File& file) {
  const Result<MapLogScan> scan = scan_map_log(file, kBlocks);
  if (!scan) return std::nullopt;
  check(scan->durable_records <= scan->records);
  std::vector<MapRecord> out;
  check(visit_map_log(file, *scan, scan->records, [&](const MapRecord& r) {
          if (r.kind == RecordKind::kData || r.kind == RecordKind::kZero) check(range_fits(r.range(), kBlocks));
          out.push_back(r);
        }).has_value());
  return out;
}

OverlayFiles files(const CrashOverlay& o, bool writable) {
  return {o.id, std::make_unique<CrashFile>(o.data, writable), std::make_unique<CrashFile>(o.log, writable)};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(data, size);
  CrashOverlay overlay{"fuzz"};
  CrashFile log(overlay.log, true);
  if (in.coin()) {
    const std::string raw = in.bytes(20000);
    check(write_all(log, 0, std::as_bytes(std::span(raw))).has_value());
  } else {
    write_plausible(in, log);
  }
  const std::optional<std::vector<MapRecord>> before = records_of(log);
  for (const HostHistory history : {HostHistory::kSameBoot, HostHistory::kCrashed}) {
    std::vector<OverlayFiles> frozen;
    frozen.push_back(files(overlay, false));
    check(OverlayStack::open(nullptr, kBlocks, std::move(frozen), std::nullopt, history).has_value() == before.has_value());
  }
  if (!before) return 0;
  // A writer goes on.
  {
    const MapLogScan scan = *scan_map_log(log, kBlocks);
    Result<MapLogWriter> writer = MapLogWriter::begin(log, scan, kBlocks, 9);
    check(writer.has_value());
    const MapRecord record{.kind = RecordKind::kData, .first = 5, .count = 6};
    check(writer->append({&record, 1}).has_value());
  }
  const std::optional<std::vector<MapRecord>> after = records_of(log);
  check(after && after->size() == before->size() + 1 && after->back().range() == BlockRange{5, 6});
  check(std::equal(before->begin(), before->end(), after->begin()));
  // And so do the daemon's tools.
  std::vector<OverlayFiles> all;
  all.push_back(files(overlay, true));
  check(recover_overlays(all, kBlocks).has_value());
  check(seal_overlay(all[0], kBlocks).has_value());
  check(scan_map_log(log, kBlocks)->sealed);
  return 0;
}
