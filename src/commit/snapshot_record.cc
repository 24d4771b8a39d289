#include "commit/snapshot_record.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/endian.h"

namespace ramet::commit {
namespace {

using image::ImageKind;
using image::kBlockBytes;

struct RawSnapshot {
  char magic[8];
  le32 version;
  le32 header_bytes;
  le32 details_bytes;
  le32 disk_bytes;  // of the roots; the last two are 0 without a machine
  le32 memory_bytes;
  le32 vmstate_root_bytes;
  le64 vmstate_bytes;
  std::byte reserved[16];
  le32 body_crc;  // CRC-32C of what follows the header
  le32 crc;       // CRC-32C of all before
};
static_assert(sizeof(RawSnapshot) == kSnapshotHeaderBytes);

constexpr char kMagic[8] = {'R', 'M', 'T', 'S', 'N', 'A', 'P', 'S'};

tl::unexpected<Error> corrupt(const std::string& what) { return fail(ErrorKind::kCorrupt, "snapshot: " + what); }

// What is wrong with it; empty: nothing.
std::string fault_of(const SnapshotRecord& record) {
  if (record.details.size() > kMaxSnapshotDetails)
    return std::to_string(record.details.size()) + " bytes of details, the limit is " + std::to_string(kMaxSnapshotDetails);
  if (record.disk.kind != ImageKind::kDisk) return "its disk is an image of memory";
  if (!record.machine) return {};
  const SnapshotMachine& machine = *record.machine;
  if (machine.memory.kind != ImageKind::kMemory || machine.vmstate.kind != ImageKind::kMemory) return "its memory is a disk";
  if (machine.vmstate_bytes == 0 || machine.vmstate_bytes > kMaxVmStateBytes)
    return "a vmstate of " + std::to_string(machine.vmstate_bytes) + " bytes, the limits are 1 and " +
           std::to_string(kMaxVmStateBytes);
  if (machine.vmstate.blocks != (machine.vmstate_bytes + kBlockBytes - 1) / kBlockBytes)
    return "a vmstate of " + std::to_string(machine.vmstate_bytes) + " bytes in " + std::to_string(machine.vmstate.blocks) +
           " blocks";
  return {};
}

Result<RawSnapshot> decode_header(std::span<const std::byte> bytes) {
  RawSnapshot raw;
  if (bytes.size() < sizeof raw) return corrupt(std::to_string(bytes.size()) + " bytes only");
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (std::memcmp(raw.magic, kMagic, sizeof kMagic) != 0) return corrupt("does not begin as one");
  if (raw.crc != crc32c(&raw, offsetof(RawSnapshot, crc))) return corrupt("wrong checksum of the header");
  if (raw.version != kSnapshotVersion)
    return fail(ErrorKind::kUnsupported, "snapshot of version " + std::to_string(raw.version) + ", this program reads " +
                                             std::to_string(kSnapshotVersion));
  if (raw.header_bytes != sizeof raw || std::ranges::any_of(raw.reserved, [](std::byte b) { return b != std::byte{0}; }))
    return corrupt("a header of another shape");
  const uint64_t body = uint64_t{raw.details_bytes} + raw.disk_bytes + raw.memory_bytes + raw.vmstate_root_bytes;
  if (body != bytes.size() - sizeof raw)
    return corrupt(std::to_string(bytes.size() - sizeof raw) + " bytes behind the header, not " + std::to_string(body));
  if ((raw.memory_bytes == 0) != (raw.vmstate_root_bytes == 0) || (raw.memory_bytes == 0) != (raw.vmstate_bytes == 0))
    return corrupt("a part of a machine");
  if (raw.details_bytes > kMaxSnapshotDetails) return corrupt(std::to_string(raw.details_bytes) + " bytes of details");
  if (raw.body_crc != crc32c(bytes.data() + sizeof raw, bytes.size() - sizeof raw))
    return corrupt("wrong checksum of the body");
  return raw;
}

// Takes bytes off the front.
std::span<const std::byte> take(std::span<const std::byte>& from, size_t count) {
  const std::span<const std::byte> out = from.first(count);
  from = from.subspan(count);
  return out;
}

}  // namespace

std::vector<const image::ManifestRoot*> roots_of(const SnapshotRecord& record) {
  if (!record.machine) return {&record.disk};
  return {&record.disk, &record.machine->memory, &record.machine->vmstate};
}

Result<std::string> encode_snapshot(const SnapshotRecord& record) {
  if (const std::string fault = fault_of(record); !fault.empty()) return fail(ErrorKind::kInvalid, "snapshot: " + fault);
  const std::string disk = image::encode_manifest_root(record.disk);
  std::string memory, vmstate;
  RawSnapshot raw{};
  if (record.machine) {
    memory = image::encode_manifest_root(record.machine->memory);
    vmstate = image::encode_manifest_root(record.machine->vmstate);
    raw.vmstate_bytes = record.machine->vmstate_bytes;
  }
  const std::string body = record.details + disk + memory + vmstate;
  std::memcpy(raw.magic, kMagic, sizeof kMagic);
  raw.version = kSnapshotVersion;
  raw.header_bytes = static_cast<uint32_t>(sizeof raw);
  raw.details_bytes = static_cast<uint32_t>(record.details.size());
  raw.disk_bytes = static_cast<uint32_t>(disk.size());
  raw.memory_bytes = static_cast<uint32_t>(memory.size());
  raw.vmstate_root_bytes = static_cast<uint32_t>(vmstate.size());
  raw.body_crc = crc32c(body.data(), body.size());
  raw.crc = crc32c(&raw, offsetof(RawSnapshot, crc));
  std::string out(sizeof raw, '\0');
  std::memcpy(out.data(), &raw, sizeof raw);
  return out + body;
}

Result<SnapshotRecord> decode_snapshot(std::span<const std::byte> bytes) {
  TRY_ASSIGN(const RawSnapshot raw, decode_header(bytes));
  std::span<const std::byte> body = bytes.subspan(sizeof raw);
  SnapshotRecord out;
  const std::span<const std::byte> details = take(body, raw.details_bytes);
  out.details.assign(reinterpret_cast<const char*>(details.data()), details.size());
  TRY_ASSIGN(out.disk, image::decode_manifest_root(take(body, raw.disk_bytes)));
  if (raw.memory_bytes != 0) {
    SnapshotMachine& machine = out.machine.emplace();
    TRY_ASSIGN(machine.memory, image::decode_manifest_root(take(body, raw.memory_bytes)));
    TRY_ASSIGN(machine.vmstate, image::decode_manifest_root(take(body, raw.vmstate_root_bytes)));
    machine.vmstate_bytes = raw.vmstate_bytes;
  }
  if (const std::string fault = fault_of(out); !fault.empty()) return corrupt(fault);
  return out;
}

}  // namespace ramet::commit
