#include "chunk/prepared.h"

#include <algorithm>
#include <string>

namespace ramet::chunk {
namespace {

std::optional<Digest> name_of(std::span<const BlockFacts> facts) {
  if (std::ranges::all_of(facts, [](const BlockFacts& f) { return f.zero; })) return std::nullopt;
  std::vector<Digest> digests;
  digests.reserve(facts.size());
  for (const BlockFacts& f : facts) digests.push_back(f.digest);
  return digest_of(digests);
}

}  // namespace

Result<Prepared> prepare(std::span<const std::byte> plain) {
  if (plain.empty() || plain.size() % kBlockBytes != 0 || plain.size() > kMaxChunkBlocks * kBlockBytes)
    return fail(ErrorKind::kInvalid, "a chunk of " + std::to_string(plain.size()) + " bytes; whole blocks of " +
                                         std::to_string(kBlockBytes) + ", at most " + std::to_string(kMaxChunkBlocks));
  Prepared out{plain, facts_of(plain), std::nullopt};
  out.name = name_of(out.facts);
  return out;
}

Prepared prepared_zeros(std::span<const std::byte> plain) {
  return {plain, std::vector<BlockFacts>(plain.size() / kBlockBytes, {true, kZeroBlockDigest}), std::nullopt};
}

void prepare_again(Prepared& chunk, std::span<const uint32_t> changed_blocks) {
  for (const uint32_t block : changed_blocks) {
    const Digest digest = block_digest(chunk.plain.subspan(block * kBlockBytes, kBlockBytes));
    chunk.facts[block] = {digest == kZeroBlockDigest, digest};
  }
  chunk.name = name_of(chunk.facts);
}

}  // namespace ramet::chunk
