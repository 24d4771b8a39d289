#include "chunk/digest.h"

#include <openssl/sha.h>

#include <algorithm>

#include "base/all_zero.h"
#include "chunk/recipe.h"
#include "chunk/side_by_side.h"

namespace ramet::chunk {
namespace {
// To set it up takes as long as hashing a hundred blocks.
constexpr size_t kWorthSideBySide = 512;
}  // namespace

Digest sha256(std::span<const std::byte> data) {
  Digest d;
  // SHA256() keeps its state on the stack; EVP would allocate for each of the millions of blocks.
  ::SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), reinterpret_cast<unsigned char*>(d.bytes.data()));
  return d;
}

const Digest kZeroBlockDigest = sha256(std::array<std::byte, kBlockBytes>{});

Digest block_digest(std::span<const std::byte> block) {
  return block.size() == kBlockBytes && all_zero(block) ? kZeroBlockDigest : sha256(block);
}

std::vector<Digest> block_digests(std::span<const std::byte> blocks) {
  std::vector<Digest> digests;
  if (blocks.size() >= kWorthSideBySide * kBlockBytes && blocks.size() % kBlockBytes == 0) {
    digests.resize(blocks.size() / kBlockBytes);
    if (SideBySide().digests(blocks, digests)) return digests;
    digests.clear();
  }
  digests.reserve(blocks.size() / kBlockBytes + 1);
  for (size_t at = 0; at < blocks.size(); at += kBlockBytes)
    digests.push_back(block_digest(blocks.subspan(at, std::min(kBlockBytes, blocks.size() - at))));
  return digests;
}

Digest digest_of(std::span<const Digest> blocks) { return sha256(std::as_bytes(blocks)); }

BlockPrint print_of(const Digest& block_digest) {
  BlockPrint print;
  std::copy_n(block_digest.bytes.begin(), print.bytes.size(), print.bytes.begin());
  return print;
}

}  // namespace ramet::chunk
