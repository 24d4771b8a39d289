// chunk/testing/memory_storage.h - packs in memory, with faults on demand. For tests of what stands above the seam.
// Thread: one.
#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "chunk/pack_storage.h"

namespace ramet::chunk::testing {

class MemoryStorage final : public PackStorage {
 public:
  std::map<PackId, std::vector<std::byte>> packs;
  std::optional<ErrorKind> fail_writes, fail_reads, fail_removals;
  mutable size_t reads = 0;

  Status write(const PackId& id, std::span<const std::byte> bytes) override {
    if (fail_writes) return fail(*fail_writes, "write a pack (test)");
    if (!packs.emplace(id, std::vector(bytes.begin(), bytes.end())).second) return fail(ErrorKind::kExists, "the pack exists");
    return {};
  }
  Status read(const PackId& id, uint64_t offset, std::span<std::byte> out) const override {
    reads++;
    if (fail_reads) return fail(*fail_reads, "read a pack (test)");
    const auto it = packs.find(id);
    if (it == packs.end()) return fail(ErrorKind::kNotFound, "no such pack");
    if (offset > it->second.size() || out.size() > it->second.size() - offset)
      return fail(ErrorKind::kCorrupt, "the pack ends early");
    std::copy_n(it->second.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  Result<uint64_t> size_bytes(const PackId& id) const override {
    const auto it = packs.find(id);
    if (it == packs.end()) return fail(ErrorKind::kNotFound, "no such pack");
    return it->second.size();
  }
  Status remove(const PackId& id) override {
    if (fail_removals) return fail(*fail_removals, "remove a pack (test)");
    packs.erase(id);
    return {};
  }
  Result<std::vector<PackId>> list() const override {
    std::vector<PackId> out;
    for (const auto& [id, bytes] : packs) out.push_back(id);
    return out;
  }
};

}  // namespace ramet::chunk::testing
