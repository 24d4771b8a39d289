// commit/snapshot_record.h - the bytes of the record of a snapshot (docs/formats/snapshot.md): the roots of what it consists
// of, and details that belong to the host. Pure: no allocation before its limit was checked. Not here: where records are kept
// (snapshot_catalogue.h), what the details say. Thread: values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "image/manifest_format.h"

namespace ramet::commit {

inline constexpr uint32_t kSnapshotVersion = 1;
inline constexpr size_t kSnapshotHeaderBytes = 64;
inline constexpr size_t kMaxSnapshotDetails = 256u << 10;
inline constexpr uint64_t kMaxVmStateBytes = 128u << 20;

// Of a machine that goes on where it was.
struct SnapshotMachine {
  image::ManifestRoot memory;
  image::ManifestRoot vmstate;  // kept as memory, zeros up to whole blocks (stored_bytes.h)
  uint64_t vmstate_bytes = 0;   // as long as it really is
  friend bool operator==(const SnapshotMachine&, const SnapshotMachine&) = default;
};

struct SnapshotRecord {
  std::string details;
  image::ManifestRoot disk;
  std::optional<SnapshotMachine> machine;  // none: the snapshot is of a disk
  friend bool operator==(const SnapshotRecord&, const SnapshotRecord&) = default;
};

// The disk's first.
std::vector<const image::ManifestRoot*> roots_of(const SnapshotRecord& record);

// Errors: kInvalid (details that are too long, an image of the wrong kind, a vmstate that does not have its size).
Result<std::string> encode_snapshot(const SnapshotRecord& record);
// Errors: kCorrupt, kUnsupported (a later version).
Result<SnapshotRecord> decode_snapshot(std::span<const std::byte> bytes);

}  // namespace ramet::commit
