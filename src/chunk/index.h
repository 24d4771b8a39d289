// chunk/index.h - where everything is: packs, frames, chunks. SQLite, so that a commit is one transaction; everything in it can
// be had again from the packs' tails (rebuild). Not here: prints of literals (literal_table.h), bytes. A resource. Thread:
// every method from many threads; one at a time inside.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/sqlite.h"
#include "chunk/pack_format.h"

namespace ramet::chunk {

struct FramePlace {
  PackId pack{};
  FrameEntry entry;
};

class Index {
 public:
  // Errors: kCorrupt (made by something else), kUnsupported (by another version: rebuild_index), kIo, kNoSpace.
  static Result<std::unique_ptr<Index>> open(const std::string& path);
  // One that is there, beside another process that writes to it, or not. What changes it is kPermission.
  // Errors: as open(), and kPermission (it is not there).
  static Result<std::unique_ptr<Index>> open_to_read(const std::string& path);

  // As long as it lives all that is read is of one moment. Keep it short: what others write piles up meanwhile.
  class Snapshot {
   public:
    Snapshot(Snapshot&& o) noexcept : index_(std::exchange(o.index_, nullptr)) {}
    ~Snapshot();

   private:
    friend class Index;
    explicit Snapshot(const Index* index) : index_(index) {}
    const Index* index_;  // null: moved away
  };
  // Requires: opened to read; one at a time.   Errors: kIo.
  Result<Snapshot> hold_still() const;

  // As SqlDatabase::set_space_aside().
  void set_space_aside() { db_.set_space_aside(); }

  // Numbers for frames, `count` in a row, that nobody gets again: also not when what used them was lost in a crash.
  // Errors: kNoSpace (also: all numbers are used up), kCorrupt, kIo.
  Result<FrameId> reserve_frame_ids(uint32_t count);
  // A pack that is about to be written. Until it is added it is *unfinished*: open it finds again, and takes away.
  Status begin_pack(const PackId& id);
  Result<std::vector<PackId>> unfinished_packs() const;
  // It was taken away.
  Status forget_pack(const PackId& id);

  // Packs that are durable already, with all that is in them: all or none. A frame that is known stays where it is, a chunk has
  // the newest record: the one before may be condemned.
  struct AddedPack {
    PackId id{};
    uint64_t bytes = 0;
    PackTail tail;
  };
  Status add(std::span<const AddedPack> packs);

  struct Chunk {
    Digest digest;
    Recipe recipe;
    PackId pack{};  // whose tail has it
  };
  // What a collection changes, together: all or none.
  struct Collection {
    std::vector<Chunk> dead;  // unless they have another record by now
    std::vector<AddedPack> added;
    std::vector<PackId> removed;  // unfinished from now on, and their frames unknown
  };
  Status apply(const Collection& collection);
  Status visit_chunks(const std::function<void(Chunk)>& visit) const;
  Status visit_frames(const std::function<void(const FramePlace&)>& visit) const;

  Result<bool> has_chunk(const Digest& digest) const;
  // Errors: kNotFound.
  Result<Recipe> recipe(const Digest& digest) const;
  // Errors: kNotFound.
  Result<FramePlace> frame(FrameId id) const;
  // One after the other.   Errors: kNotFound.
  Result<std::vector<FramePlace>> frames(std::span<const FrameId> ids) const;

  struct Pack {
    PackId id{};
    uint64_t bytes = 0;
  };
  Result<std::vector<Pack>> packs() const;
  Result<bool> has_pack(const PackId& id) const;
  Result<std::vector<Digest>> chunks() const;
  // Whether all of it says what was written.   Errors: kCorrupt, with the first that does not.
  Status check() const;
  struct Totals {
    uint64_t packs = 0, pack_bytes = 0, frames = 0, frame_bytes = 0, literal_blocks = 0, chunks = 0;
  };
  Result<Totals> totals() const;

 private:
  explicit Index(SqlDatabase db) : db_(std::move(db)) {}
  Status prepare_tables();
  Status check_version() const;
  // With mutex_ held, or before anybody else knows of it:
  Result<int64_t> meta(const char* key) const;
  Result<FrameId> next_frame() const;
  Status check_together() const;
  Status set_next_frame(FrameId next);
  Status insert(const AddedPack& pack);

  mutable std::mutex mutex_;  // guards all below
  mutable SqlDatabase db_;
  FrameId next_frame_ = 0, reserved_end_ = 0;
};

}  // namespace ramet::chunk
