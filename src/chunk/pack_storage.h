// chunk/pack_storage.h - where packs lie: the seam between the store and a directory, memory or a bucket.
// A pack is written whole and never changed, so this is all that a place has to offer. Names are those of packs
// (pack_format.h). Not here: what is in a pack, which packs are needed. Thread: every method from many threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "chunk/pack_format.h"

namespace ramet::chunk {

class PackStorage {
 public:
  virtual ~PackStorage() = default;

  // Afterwards the pack is there, whole and durable; where this fails or the process dies in it, it is not there, or whole.
  // Requires: `bytes` is page-aligned and a multiple of kPackAlignment.   Errors: kExists, kNoSpace, kIo, kUnavailable.
  virtual Status write(const PackId& id, std::span<const std::byte> bytes) = 0;
  // Fills `out`.   Errors: kNotFound, kCorrupt (the pack is shorter), kIo, kUnavailable.
  virtual Status read(const PackId& id, uint64_t offset, std::span<std::byte> out) const = 0;
  // Errors: kNotFound, kIo, kUnavailable.
  virtual Result<uint64_t> size_bytes(const PackId& id) const = 0;
  // Absent already: success.   Errors: kIo, kUnavailable.
  virtual Status remove(const PackId& id) = 0;
  // In no order.   Errors: kIo, kUnavailable.
  virtual Result<std::vector<PackId>> list() const = 0;
  // What was read of the pack was wrong: gets it anew from somewhere behind this place, so that reading it again may help.
  // Errors: kNotFound (there is no such place, or the pack is not there), kCorrupt (not whole there either), kNoSpace, kIo,
  // kUnavailable; the pack is as before then, or away here and still there.
  virtual Status refetch(const PackId&) { return fail(ErrorKind::kNotFound, "there is no other copy of the pack"); }
};

}  // namespace ramet::chunk
