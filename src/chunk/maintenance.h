// chunk/maintenance.h - looking over a whole store: is everything what it says it is, and making the index again from the
// packs. Reports what it found and never guesses. Not here: repair. Thread: any; verify() beside all use of the store, also
// by another process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "chunk/store.h"

namespace ramet::chunk {

struct Problem {
  std::string where;  // "index", "pack ID", "frame N in pack ID", "chunk DIGEST"
  Error error;
};

struct VerifyReport {
  uint64_t packs = 0, frames = 0, chunks = 0;  // looked at
  std::vector<Problem> problems;
};

struct Progress {
  uint64_t done = 0, total = 0;  // packs, then chunks
};

// The index: every row against its checksum, and whether it knows every pack. Every pack: all its bytes against their checksum,
// every frame against its digest. Every chunk of the index: put together, against its name.   Errors: only when the index or
// the storage cannot be listed at all.
Result<VerifyReport> verify(const Store& store, const std::function<void(const Progress&)>& progress = {});

struct RebuildReport {
  uint64_t packs = 0;
  std::vector<Problem> left_out;  // packs whose tail cannot be read
};
// A new index at `index_path` from all packs that there are, in the place of the old one, if any, once it is complete. The
// store must not be open. `common`: the public store that it refers to; chunks that need it are forgotten without.
//   Errors: kIo, kNoSpace, kUnavailable; the old index is as before then.
Result<RebuildReport> rebuild_index(const PackStorage& packs, const std::string& index_path, const Store* common = nullptr);

}  // namespace ramet::chunk
