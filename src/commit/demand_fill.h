// commit/demand_fill.h - an image's memory into the two files that machines map (image/memory_layout.h), chunk by chunk, in
// the order in which it is wanted.
//
//   missing ──need(), fill_next()──► filling ──► there            each chunk is fetched once, checked by its name, then written
//      ▲                                │
//      └───────── it failed ────────────┘   the next who wants it tries again
//
// Whole data pieces come to be, zeros inside of them too: a hole of a shared file costs every later user twice. What is zero
// by the map is left out. When all is there the files can be sealed, and not before.
// Not here: faults of machines (host/memory_filler.h), making and sharing the files. Thread: any, all at the same time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "commit/stored_manifest.h"
#include "image/memory_layout.h"

namespace ramet::commit {

class DemandFill {
 public:
  static constexpr uint64_t kChunk = image::chunk_blocks(image::ImageKind::kMemory) * image::kBlockBytes;
  static constexpr size_t kMaxTouched = 4096;  // chunks that are noted as touched

  // `zeros` is what image::zero_map_of() says of this manifest, which is read here and not needed later. The files are
  // borrowed, may have been filled in part before, and hold nothing else. `first`: chunks that fill_next() takes before the
  // others; any numbers. Errors: kInvalid (no memory, a map that does not fit it, files not of its size), and those of the
  // manifest's pages.
  static Result<std::unique_ptr<DemandFill>> make(image::Manifest& manifest, const chunk::Store& store,
                                                  const image::ZeroMap& zeros, int even, int odd,
                                                  const std::vector<uint32_t>& first = {});

  // Whether the store has the first `count` chunks of the order. Looking for all of a large image takes longer than a start.
  // Errors: kNotFound, kIo.
  Status check_present(size_t count) const;
  // Where this byte of RAM lies is in its file when it returns.   Errors: kInvalid (no data piece), those of Store::get,
  // kNoSpace, kIo.
  Status need(uint64_t offset);
  // The next chunk of the order that nobody has fetched; nullopt: there is none left to take, though others may be filling
  // some. True: it is there. Errors: as need(); the chunk stays missing.
  Result<std::optional<uint64_t>> fill_next();
  // Chunks that failed are taken once more by fill_next().
  void start_over() { next_ = 0; }

  uint64_t total_chunks() const { return total_; }
  uint64_t missing_chunks() const { return missing_; }
  bool complete() const { return missing_ == 0; }
  // Chunks that were needed while they were missing, in that order, at most kMaxTouched.
  std::vector<uint32_t> touched() const;

 private:
  enum State : uint8_t { kMissing, kFilling, kThere, kNoData };
  DemandFill(const chunk::Store& store, uint64_t ram_bytes, int even, int odd)
      : store_(store), ram_bytes_(ram_bytes), files_{even, odd} {}
  Status fill(uint32_t chunk, bool touched);
  Status fetch(uint32_t chunk);

  const chunk::Store& store_;
  const uint64_t ram_bytes_;
  const int files_[2];
  std::vector<Digest> names_;    // by chunk
  std::vector<uint32_t> order_;  // of fill_next()
  std::atomic<size_t> next_{0};  // in order_
  uint64_t total_ = 0;
  std::atomic<uint64_t> missing_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;                              // guarded by mutex_
  std::vector<uint32_t> touched_;                          // guarded by mutex_
  std::vector<std::unique_ptr<std::byte[]>> spare_rooms_;  // guarded by mutex_; of kChunk bytes
};

}  // namespace ramet::commit
