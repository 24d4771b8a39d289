#include "commit/qcow2_header.h"

#include <string>

namespace ramet::commit {
namespace {

constexpr uint32_t kMagic = 0x514649fb;  // "QFI" and 0xfb
constexpr size_t kVersion2Bytes = 72;

// Incompatible features.
constexpr uint64_t kDirty = 1, kMarkedCorrupt = 2, kDataFile = 4, kCompression = 8, kExtendedL2 = 16;

// qcow2 is big-endian.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint32_t u32(size_t at) const {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; i++) value = value << 8 | static_cast<uint32_t>(bytes_[at + i]);
    return value;
  }
  uint64_t u64(size_t at) const { return uint64_t{u32(at)} << 32 | u32(at + 4); }

 private:
  std::span<const std::byte> bytes_;
};

tl::unexpected<Error> refuse(ErrorKind kind, const std::string& why) { return fail(kind, "the qcow2 image " + why); }

Status check_features(uint64_t features) {
  if (features & kMarkedCorrupt) return refuse(ErrorKind::kInvalid, "is marked as corrupt");
  if (features & kDataFile) return refuse(ErrorKind::kInvalid, "keeps its data in another file");
  if (const uint64_t unknown = features & ~(kDirty | kCompression | kExtendedL2))
    return refuse(ErrorKind::kUnsupported, "needs features that are not known: bits " + std::to_string(unknown));
  return {};
}

}  // namespace

Result<Qcow2Header> decode_qcow2_header(std::span<const std::byte> bytes, uint64_t max_disk_bytes) {
  const Fields f(bytes);
  if (bytes.size() < kVersion2Bytes || f.u32(0) != kMagic) return fail(ErrorKind::kCorrupt, "the file is no qcow2 image");
  const Qcow2Header header{.version = f.u32(4), .disk_bytes = f.u64(24)};
  if (header.version != 2 && header.version != 3)
    return refuse(ErrorKind::kUnsupported, "has version " + std::to_string(header.version) + "; 2 and 3 are known");
  if (f.u64(8) != 0 || f.u32(16) != 0) return refuse(ErrorKind::kInvalid, "has a backing file");
  if (f.u32(32) != 0) return refuse(ErrorKind::kInvalid, "is encrypted");
  if (header.version == 3) {
    if (bytes.size() < kQcow2HeaderBytes) return fail(ErrorKind::kCorrupt, "the qcow2 image ends in its header");
    TRY(check_features(f.u64(72)));
  }
  if (header.disk_bytes == 0 || header.disk_bytes > max_disk_bytes)
    return refuse(ErrorKind::kInvalid, "is a disk of " + std::to_string(header.disk_bytes) + " bytes; the limits are 1 and " +
                                           std::to_string(max_disk_bytes));
  return header;
}

}  // namespace ramet::commit
