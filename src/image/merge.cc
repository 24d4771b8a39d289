#include "image/merge.h"

#include <algorithm>

#include "image/zero_runs.h"

namespace ramet::image {
namespace {

constexpr uint64_t kCopyBlocks = 256;
constexpr size_t kRecordsPerAppend = 1024;

Status read_blocks(const BlockSource& source, BlockRange range, std::span<std::byte> out) {
  const iovec v{out.data(), out.size()};
  TRY(source.read(range, {&v, 1}, Wait::kAllowed));
  return {};
}

Status seal_scanned(OverlayFiles& overlay, const MapLogScan& scan, uint64_t size_blocks) {
  if (scan.sealed) return {};
  TRY(overlay.data->sync());
  TRY_ASSIGN(MapLogWriter log, MapLogWriter::begin(*overlay.log, scan, size_blocks, random_overlay_id()));
  TRY(log.write_header());
  TRY(overlay.log->sync());  // header and records before the seal
  const MapRecord seal{.kind = RecordKind::kSeal};
  TRY(log.append({&seal, 1}));
  return overlay.log->sync();
}

}  // namespace

Status seal_overlay(OverlayFiles& overlay, uint64_t size_blocks) {
  TRY_ASSIGN(const MapLogScan scan, scan_map_log(*overlay.log, size_blocks));
  return seal_scanned(overlay, scan, size_blocks);
}

Status recover_overlays(std::vector<OverlayFiles>& overlays, uint64_t size_blocks) {
  std::vector<MapLogScan> scans;
  std::vector<uint64_t> durable_ids;
  for (const OverlayFiles& overlay : overlays) {
    TRY_ASSIGN(MapLogScan scan, scan_map_log(*overlay.log, size_blocks));
    durable_ids.insert(durable_ids.end(), scan.lower_synced.begin(), scan.lower_synced.end());
    scans.push_back(std::move(scan));
  }
  for (size_t i = 0; i < overlays.size(); i++) {
    if (scans[i].durable_records == scans[i].records) continue;
    if (std::find(durable_ids.begin(), durable_ids.end(), scans[i].header.overlay_id) != durable_ids.end()) {
      TRY(seal_scanned(overlays[i], scans[i], size_blocks));
      continue;
    }
    scans[i].forget_tentative();
    TRY(MapLogWriter::begin(*overlays[i].log, scans[i], size_blocks, random_overlay_id()));  // cuts
    TRY(overlays[i].log->sync());
  }
  return {};
}

Result<MergeReport> merge_overlays(std::vector<OverlayFiles> frozen, uint64_t size_blocks, OverlayFiles& out) {
  TRY_ASSIGN(const auto stack,
             OverlayStack::open(nullptr, size_blocks, std::move(frozen), std::nullopt, HostHistory::kSameBoot));
  TRY(out.data->resize(size_blocks * kBlockBytes));
  TRY_ASSIGN(const MapLogScan scan, scan_map_log(*out.log, size_blocks));
  if (scan.has_header) return fail(ErrorKind::kInvalid, "the merged overlay's files are not empty");
  TRY_ASSIGN(MapLogWriter log, MapLogWriter::begin(*out.log, scan, size_blocks, random_overlay_id()));
  MergeReport report;
  std::vector<MapRecord> records;
  const auto add_run = [&](RecordKind kind, BlockRange range) {
    (kind == RecordKind::kData ? report.data_blocks : report.zero_blocks) += range.count;
    if (!records.empty() && records.back().kind == kind && records.back().range().end() == range.first)
      records.back().count += range.count;
    else
      records.push_back({.kind = kind, .first = range.first, .count = range.count});
  };
  std::vector<std::byte> buffer(kCopyBlocks * kBlockBytes);
  for (BlockRange left{0, size_blocks}; left.count > 0;) {
    using Origin = OverlayStack::Extent::Origin;
    const OverlayStack::Extent extent = stack->extent_at(left);
    BlockRange step = extent.range;
    if (extent.origin == Origin::kZero) add_run(RecordKind::kZero, step);
    if (extent.origin == Origin::kOverlay) {
      step.count = std::min(step.count, kCopyBlocks);
      const std::span<std::byte> bytes = std::span(buffer).first(step.count * kBlockBytes);
      TRY(read_blocks(*stack, step, bytes));
      TRY(for_zero_runs(bytes, [&](BlockRange run, bool zero) -> Status {
        add_run(zero ? RecordKind::kZero : RecordKind::kData, {step.first + run.first, run.count});
        if (zero) return {};
        return write_all(*out.data, (step.first + run.first) * kBlockBytes,
                         bytes.subspan(run.first * kBlockBytes, run.count * kBlockBytes));
      }));
    }
    left = {step.end(), left.count - step.count};
  }
  // Data and header are durable before the first record.
  TRY(out.data->sync());
  TRY(log.write_header());
  TRY(out.log->sync());
  for (size_t at = 0; at < records.size(); at += kRecordsPerAppend)
    TRY(log.append(std::span(records).subspan(at, std::min(kRecordsPerAppend, records.size() - at))));
  TRY(out.log->sync());
  const MapRecord seal{.kind = RecordKind::kSeal};
  TRY(log.append({&seal, 1}));
  TRY(out.log->sync());
  return report;
}

Status export_raw(const BlockSource& source, File& out) {
  TRY(out.resize(source.size_blocks() * kBlockBytes));
  std::vector<std::byte> buffer(kCopyBlocks * kBlockBytes);
  for (uint64_t at = 0; at < source.size_blocks(); at += kCopyBlocks) {
    const BlockRange range{at, std::min(kCopyBlocks, source.size_blocks() - at)};
    const std::span<std::byte> bytes = std::span(buffer).first(range.count * kBlockBytes);
    TRY(read_blocks(source, range, bytes));
    TRY(for_zero_runs(bytes, [&](BlockRange run, bool zero) -> Status {
      if (zero) return {};
      return write_all(out, (at + run.first) * kBlockBytes, bytes.subspan(run.first * kBlockBytes, run.count * kBlockBytes));
    }));
  }
  return {};
}

}  // namespace ramet::image
