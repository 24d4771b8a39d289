// The first bytes of a qcow2 file, what they say about the format of any, and the record of an unfinished import. What is
// accepted is within the limits, and the record is what the encoder writes.
#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "commit/guess_format.h"
#include "commit/qcow2_header.h"
#include "commit/unfinished_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ramet::commit;
  if (size == 0) return 0;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data + 1, size - 1));
  if ((data[0] & 1) == 0) {
    static_cast<void>(guess_format(bytes));
    constexpr uint64_t kMost = 1ull << 40;
    const ramet::Result<Qcow2Header> header = decode_qcow2_header(bytes, kMost);
    if (header && (header->disk_bytes == 0 || header->disk_bytes > kMost)) abort();
    return 0;
  }
  const ramet::Result<Unfinished> import = decode_unfinished(bytes);
  if (!import) return 0;
  const std::string again = encode_unfinished(*import);
  if (!std::ranges::equal(ramet::as_bytes(again), bytes)) abort();
  return 0;
}
