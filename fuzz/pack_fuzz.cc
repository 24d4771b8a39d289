// A pack's bytes: recipes and tails as they come, and tails with a checksum made right. Whatever is accepted is what the
// encoder writes, lies within its limits, and its frames decode to their digest or to an error.
#include <cstdlib>

#include "base/crc32c.h"
#include "base/file.h"
#include "chunk/pack_format.h"
#include "input.h"

namespace {

using namespace ramet;
using namespace ramet::chunk;

void check(bool good) {
  if (!good) abort();
}

void recipe(std::span<const std::byte> bytes) {
  const std::optional<Recipe> r = decode_recipe(bytes);
  if (!r) return;
  check(r->blocks() <= kMaxChunkBlocks && r->frames().size() <= r->extents.size());
  for (const Extent& e : r->extents) check(e.blocks > 0 && (!e.frame || e.first + e.blocks <= kFrameBlocks));
  const std::string again = encode_recipe(*r);
  check(std::ranges::equal(as_bytes(again), bytes));
}

void pack(std::span<const std::byte> bytes) {
  if (bytes.size() < kPackHeaderBytes + kPackFooterBytes) return;
  (void)decode_pack_header(bytes.first<kPackHeaderBytes>());
  const Result<PackFooter> read = decode_pack_footer(bytes.last<kPackFooterBytes>(), bytes.size());
  // Without the right checksums nothing gets far: half of the rest as a tail with one that is right.
  PackFooter footer{.tail_offset = kPackHeaderBytes + (bytes.size() - kPackHeaderBytes - kPackFooterBytes) / 2};
  footer.tail_bytes = bytes.size() - kPackFooterBytes - footer.tail_offset;
  if (read) footer = *read;
  const std::span<const std::byte> tail_bytes = bytes.subspan(footer.tail_offset, footer.tail_bytes);
  if (!read) footer.tail_crc = crc32c(tail_bytes.data(), tail_bytes.size());
  const Result<PackTail> tail = decode_pack_tail(tail_bytes, footer);
  if (!tail) return;
  const std::string again = encode_pack_tail(*tail);
  check(std::ranges::equal(as_bytes(again), tail_bytes));
  check(tail->prints.size() == tail->frames.size());
  FrameDecoder decoder;
  std::vector<std::byte> plain;
  for (const FrameEntry& e : tail->frames) {
    check(e.offset >= kPackHeaderBytes && e.offset + e.stored_bytes <= footer.tail_offset);
    plain.resize(e.blocks * kBlockBytes);
    if (decoder.decode(e, bytes.subspan(e.offset, e.stored_bytes), plain)) check(digest_of(plain) == e.digest);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> rest = std::as_bytes(std::span(data + 1, size - 1));
  data[0] & 1 ? recipe(rest) : pack(rest);
  return 0;
}
