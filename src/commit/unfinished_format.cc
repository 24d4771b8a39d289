#include "commit/unfinished_format.h"

#include <cstring>

#include "base/crc32c.h"
#include "base/endian.h"

namespace ramet::commit {
namespace {

struct RawUnfinished {
  char magic[8];
  le32 version;
  le32 header_bytes;
  std::byte source[32];
  le64 next_chunk;
  le32 reserved;
  le32 crc;  // CRC-32C of all before
};
static_assert(sizeof(RawUnfinished) == 64);

constexpr char kMagic[8] = {'R', 'M', 'T', 'U', 'N', 'F', 'I', 'N'};
constexpr uint32_t kVersion = 1;

tl::unexpected<Error> corrupt(const std::string& what) { return fail(ErrorKind::kCorrupt, "unfinished import: " + what); }

}  // namespace

std::string encode_unfinished(const Unfinished& import) {
  RawUnfinished raw{};
  std::memcpy(raw.magic, kMagic, sizeof kMagic);
  raw.version = kVersion;
  raw.header_bytes = static_cast<uint32_t>(sizeof raw);
  std::memcpy(raw.source, import.source.bytes.data(), sizeof raw.source);
  raw.next_chunk = import.next_chunk;
  raw.crc = crc32c(&raw, offsetof(RawUnfinished, crc));
  std::string out(sizeof raw, '\0');
  std::memcpy(out.data(), &raw, sizeof raw);
  return out + image::encode_manifest_root(import.root);
}

Result<Unfinished> decode_unfinished(std::span<const std::byte> bytes) {
  RawUnfinished raw;
  if (bytes.size() < sizeof raw) return corrupt(std::to_string(bytes.size()) + " bytes only");
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (std::memcmp(raw.magic, kMagic, sizeof kMagic) != 0) return corrupt("does not begin as one");
  if (raw.crc != crc32c(&raw, offsetof(RawUnfinished, crc))) return corrupt("wrong checksum of the header");
  if (raw.version != kVersion)
    return fail(ErrorKind::kUnsupported, "unfinished import of version " + std::to_string(raw.version) +
                                             ", this program reads " + std::to_string(kVersion));
  if (raw.header_bytes != sizeof raw || raw.reserved != 0) return corrupt("a header of another shape");
  Unfinished out{.next_chunk = raw.next_chunk};
  std::memcpy(out.source.bytes.data(), raw.source, sizeof raw.source);
  TRY_ASSIGN(out.root, image::decode_manifest_root(bytes.subspan(sizeof raw)));
  if (out.next_chunk > image::chunks_of(out.root.kind, out.root.blocks)) return corrupt("further than its end");
  return out;
}

}  // namespace ramet::commit
