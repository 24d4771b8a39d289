// The root of a manifest, as it comes and with its checksums made right. What is accepted is what the encoder writes, and all
// its chunks can be asked for while pages are anything.
#include <cstdlib>
#include <cstring>

#include "base/crc32c.h"
#include "base/file.h"
#include "image/manifest.h"
#include "input.h"

namespace {

using namespace ramet;
using namespace ramet::image;

void check(bool good) {
  if (!good) abort();
}

void make_right(std::string& bytes) {
  if (bytes.size() < kRootHeaderBytes) return;
  const uint32_t pages = crc32c(bytes.data() + kRootHeaderBytes, bytes.size() - kRootHeaderBytes);
  std::memcpy(bytes.data() + 56, &pages, sizeof pages);
  const uint32_t header = crc32c(bytes.data(), 60);
  std::memcpy(bytes.data() + 60, &header, sizeof header);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(data, size);
  const bool right = in.coin();
  const uint64_t chunk = in.number<uint64_t>();
  std::string bytes = in.bytes(4096);
  if (right) make_right(bytes);
  const Result<ManifestRoot> root = decode_manifest_root(as_bytes(bytes));
  if (!root) return 0;
  check(encode_manifest_root(*root) == bytes);
  check(root->pages.size() == pages_of(root->kind, root->blocks));
  Manifest manifest = Manifest::of(*root, [&](const Digest& d) -> Result<std::string> {
    return std::string(in.coin() ? kPageBytes : 10, std::to_integer<char>(d.bytes[0]));
  });
  for (const uint64_t n : {chunk, chunk % (manifest.chunks() + 1), uint64_t{0}}) (void)manifest.chunk(n);
  return 0;
}
