// chunk/store.h - immutable chunks, named by the digest of their plain bytes; one store is one dedup domain.
//
//   Batch b = store.begin();  b.put(bytes) ... b.put(bytes);  b.commit();  note what the chunks are for;  destroy b
//
// What a batch stored or found is safe from collections until the batch is destroyed, and from then on by being named to them.
// A store may refer to one *public* store, never the other way and never to a third: what it does not have it reads there,
// and its recipes name literals there. What neither has is not found, whoever else has it: nothing else is asked.
// Only commit() makes anything durable or visible to others. It ends the last pack, which is synced, and then adds all of them
// to the index in one transaction. A pack is announced in the index before it is written: what a crash left, and nothing else,
// the next open() takes away; what could not be taken away on a full disk, say, the next collection does. Chunks of zeros have
// no name and are never stored. Not here: which chunks are needed (garbage collection), what they mean. Thread: the store's
// methods from many threads; a batch is one thread's. Batches may run side by side.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "chunk/index.h"
#include "chunk/literal_table.h"
#include "chunk/pack.h"
#include "chunk/pack_storage.h"
#include "chunk/pins.h"
#include "chunk/prepared.h"

namespace ramet::chunk {

class Store;

// Takes away what it wrote unless it was committed. No collection touches what it relies on as long as it lives, committed or
// not. Must not outlive its store.
class Batch {
 public:
  Batch(Batch&&) noexcept;
  ~Batch();

  // Requires: whole blocks, 1 to kMaxChunkBlocks. `parent`: a chunk that this one is probably a changed version of.
  // nullopt: all zero.   Errors: kInvalid (size), kNoSpace, kNoMemory, kIo; the batch can only be dropped then.
  Result<std::optional<Digest>> put(std::span<const std::byte> plain, const std::optional<Digest>& parent = std::nullopt);
  // The same in two steps: prepare() may be another thread's.
  Result<std::optional<Digest>> put(const Prepared& chunk, const std::optional<Digest>& parent = std::nullopt);
  // Errors: kNoSpace, kIo; nothing of the batch is there then.
  Status commit();

 private:
  friend class Store;
  friend class Collection;
  struct State;
  explicit Batch(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Store {
 public:
  struct Options {
    uint32_t max_frames_per_chunk = kMaxChunkBlocks;  // foreign ones, see matcher.h
    unsigned compress_threads = 0;                    // of each batch that stores much; 0: the one that puts
    bool set_space_aside = false;                     // so that a collection can begin on a full disk: a few MiB
    Store* common = nullptr;                          // the public store; refers to none itself, outlives this one
  };
  // `index_path` is a file that this store alone uses.   Errors: those of Index::open, and of reading the packs' tails.
  static Result<std::unique_ptr<Store>> open(std::unique_ptr<PackStorage> packs, const std::string& index_path,
                                             Options options);
  // To be read only, whoever else has it open. What is found may be gone a moment later: kNotFound then.
  // Errors: those of Index::open_to_read.
  static Result<std::unique_ptr<const Store>> open_to_read(std::unique_ptr<PackStorage> packs, const std::string& index_path);

  Batch begin();
  Result<bool> has(const Digest& digest) const;
  // Checked against its name.   Errors: kNotFound, kCorrupt, kIo, kUnavailable.
  Result<std::vector<std::byte>> get(const Digest& digest) const;
  // The same, to where `room` says: it is told how long the chunk is, and may refuse.   Errors: also those of `room`.
  Status get(const Digest& digest, const std::function<Result<std::span<std::byte>>(size_t bytes)>& room) const;
  // The same, with what prepare() knows of it, because the check finds that anyhow: for whoever puts a changed version.
  Result<Prepared> get_prepared(const Digest& digest,
                                const std::function<Result<std::span<std::byte>>(size_t bytes)>& room) const;
  // Some blocks of it, each frame checked by its own digest; `out` is as long as they are.   Errors: kInvalid (range), as
  // get().
  Status read(const Digest& digest, uint32_t first_block, std::span<std::byte> out) const;

  // What a chunk consists of. Frames of the public store are marked as such (is_common).   Errors: kNotFound, kCorrupt, kIo.
  Result<Recipe> recipe(const Digest& digest) const;
  // Where a frame is that such a recipe names.   Errors: kNotFound, kCorrupt, kIo.
  Result<FramePlace> frame(FrameId id) const;
  // Whether this is that block of a frame of this store, by its print. False also when the frame is not known any more.
  bool is_block(const BlockRef& ref, std::span<const std::byte> plain) const;

  // What is needed, as those who hold manifests know it.
  struct LiveSet {
    std::unordered_set<Digest, DigestHash> chunks;
    // Of a public store: what others refer to, asked of each of them by uses_of_common(). These frames stay as they are.
    std::unordered_set<FrameId> frames;
  };
  // The frames of the public store that chunks of this one refer to. Which of its chunks this one's users name they know.
  Result<std::unordered_set<FrameId>> uses_of_common() const;
  struct Collected {
    uint64_t chunks_removed = 0, packs_removed = 0, packs_written = 0, bytes_before = 0, bytes_after = 0;
    bool only_whole_packs = false;  // on a full disk: another collection, once there is room, gives more back
  };
  // Forgets all chunks but the live ones and those that batches rely on, and gives their space back: packs less than two thirds
  // alive are written anew, without what is dead. `live` is asked when the collection has begun: what it does not tell and no
  // batch stored or found from then on, or still held then, is dead. Afterwards the packs take at most 1.5 times what is alive
  // in them, and what their last pages waste; more while batches pin frames, and on a full disk, where only packs without
  // anything alive go. Readers and batches go on; another collection waits.   Errors: those of `live`; kCorrupt (what it has to
  // move), kNoSpace, kIo; the store is as before then.
  Result<Collected> collect(const std::function<Result<LiveSet>()>& live);
  Result<Index::Totals> totals() const { return index_->totals(); }
  // For maintenance.
  const Index& index() const { return *index_; }
  PackStorage& packs() const { return *packs_; }  // reading may bring a pack here

 private:
  friend class Batch;
  friend class Collection;
  Store(std::unique_ptr<PackStorage> packs, std::unique_ptr<Index> index, Options options)
      : options_(options), packs_(std::move(packs)), index_(std::move(index)) {}
  Status load();
  // A pack that is announced, and shall not be. What fails is tried again by take_away_left_over().
  void take_away(const PackId& id);
  void take_away_left_over();
  Status assemble(const Digest& digest, const std::function<Result<std::span<std::byte>>(const Recipe&)>& place,
                  uint32_t first_block, FrameProof proof) const;

  const Options options_;
  const std::unique_ptr<PackStorage> packs_;
  const std::unique_ptr<Index> index_;
  LiteralTable literals_;
  Pins pins_;
  std::mutex collecting_;  // one at a time
  // Shared: by a commit that is in the index and not yet in the literal table; alone: while a collection notes which packs
  // there are. Held across the index's transaction.
  std::shared_mutex publishing_;
  std::mutex left_over_mutex_;
  std::vector<PackId> left_over_;  // guarded by left_over_mutex_
};

}  // namespace ramet::chunk
