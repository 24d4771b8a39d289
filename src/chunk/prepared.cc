#include "chunk/prepared.h"

#include <algorithm>
#include <string>

namespace ramet::chunk {

Result<Prepared> prepare(std::span<const std::byte> plain) {
  if (plain.empty() || plain.size() % kBlockBytes != 0 || plain.size() > kMaxChunkBlocks * kBlockBytes)
    return fail(ErrorKind::kInvalid, "a chunk of " + std::to_string(plain.size()) + " bytes; whole blocks of " +
                                         std::to_string(kBlockBytes) + ", at most " + std::to_string(kMaxChunkBlocks));
  Prepared out{plain, facts_of(plain), std::nullopt};
  if (std::ranges::all_of(out.facts, [](const BlockFacts& f) { return f.zero; })) return out;
  std::vector<Digest> digests;
  digests.reserve(out.facts.size());
  for (const BlockFacts& f : out.facts) digests.push_back(f.digest);
  out.name = digest_of(digests);
  return out;
}

}  // namespace ramet::chunk
