// image/overlay_stack.h - a copy-on-write disk: base, frozen overlays over it, and at most one writable overlay on top.
//
// Problem: a branch must be made in microseconds, must keep only what it changed, and a flush must mean durable, also on a host
// that loses power. Idea: block n of every overlay lies at n * 4096 of a sparse data file, so writing is one pwrite and no
// allocator of ours exists; which blocks an overlay holds comes only from its append-only map log. The map block -> layer is in
// memory (block_map.h) and is inherited by fork(2).
// Rejected: presence from the file's extents (SEEK_DATA): they lie after punch, zero-range and preallocation. One map in the
// data file: a flush would rewrite in place. Awaiting flushes before a fork: 3 to 190 ms.
//
// Order of durability (docs/formats/overlay.md):  data -> fdatasync -> log records -> fdatasync -> punch.
// Freezing writes the pending records without a sync and marks them tentative; the first flush on any branch makes the frozen
// overlay durable before its own data and says so in its own log.
//
// Thread: BlockTarget's methods concurrently. The others ("drained") need: no read, write or zero in progress. A flush may be:
// hold() keeps it from changing memory until release(), which is what makes fork(2) possible in the middle of a flush; it
// notices a freeze and begins anew.
#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "image/block_map.h"
#include "image/map_log.h"
#include "image/source.h"

namespace ramet::image {

// The two files of an overlay. Frozen ones have no writer.
struct OverlayFiles {
  std::string id;
  std::unique_ptr<File> data;
  std::unique_ptr<File> log;
};
// Descriptors as they come from the daemon; the rw ones are empty for a frozen overlay.
OverlayFiles overlay_from_descriptors(std::string id, UniqueFd data_rw, UniqueFd data_ro, UniqueFd log_rw, UniqueFd log_ro);

// Whether records that a freeze left without a sync can be believed.
enum class HostHistory {
  kSameBoot,  // the host's page cache still has everything that was written
  kCrashed,   // only what is sealed, or named durable by a later overlay
};

class OverlayStack final : public BlockTarget {
 public:
  static constexpr size_t kMaxLayers = 250;
  static constexpr size_t kLayersWanted = 16;  // more: upkeep() copies the smallest into the writable overlay

  // `base` null: all zero. `frozen` oldest first. Without `writable` the disk is read-only until start_writable().
  // Errors: kInvalid (too many), kCorrupt (a log), kIo.
  static Result<std::unique_ptr<OverlayStack>> open(std::unique_ptr<BlockSource> base, uint64_t size_blocks,
                                                    std::vector<OverlayFiles> frozen, std::optional<OverlayFiles> writable,
                                                    HostHistory history);
  ~OverlayStack() override;

  uint64_t size_blocks() const override { return map_.size_blocks(); }
  Result<bool> read(BlockRange range, std::span<const iovec> to, Wait wait) const override;
  Status write(BlockRange range, std::span<const iovec> from) override;
  Status zero(BlockRange range) override;
  Status flush() override;
  // Copies the blocks of the smallest frozen overlays up into the writable one, until at most kLayersWanted are needed. The
  // emptied ones are closed by the next freeze. Without it every fork of a machine would add a layer, and the daemon's merges
  // come late.
  bool wants_upkeep() const override;
  Status upkeep() override { return upkeep_to(kLayersWanted); }
  Status upkeep_to(size_t layers);

  // ---- Drained only.
  void hold() override;
  void release() override;
  // Makes the writable overlay the newest frozen one and closes its writers. False: it holds nothing and stays writable.
  // Errors: kNoSpace, kIo (its log cannot take the pending records), kConflict (too many layers); nothing changed then.
  Result<bool> freeze();
  // A new top. The present one, if any, must be empty and is dropped (a child drops its parent's so).   Errors: kCorrupt, kIo.
  Status start_writable(OverlayFiles files);
  // Puts `merged` in the place of `count` frozen overlays from `first` (0 = oldest), whose union it is.   Errors: kInvalid,
  // kCorrupt, kIo.
  Status replace_frozen(size_t first, size_t count, OverlayFiles merged);
  // Closes a writable overlay that holds nothing.   Errors: kConflict.
  Status drop_untouched();
  void after_fork() override;

  // ---- For reports, from any thread.
  size_t frozen_count() const;
  std::vector<std::string> frozen_ids() const;
  std::string writable_id() const;        // empty: none
  uint64_t writable_data_blocks() const;  // that the writable overlay holds
  bool writable_touched() const;          // a freeze would freeze it
  std::vector<int> descriptors() const;   // what a forked child must keep

  // The run of blocks of equal origin at range.first, cut to the range.
  struct Extent {
    BlockRange range;
    enum class Origin { kBase, kZero, kOverlay } origin;
  };
  Extent extent_at(BlockRange range) const;
  Content content_at(BlockRange range) const override;

 private:
  struct Layer {
    std::string id;
    uint64_t log_id = 0;
    std::unique_ptr<File> data, log;
    bool needs_sync = false;  // frozen before everything in it was durable
  };
  struct Pending {
    RecordKind kind;
    BlockRange range;
    bool punch;  // the range held data of this overlay
  };
  struct FlushPlan;
  static constexpr Slot kBaseSlot = 0, kZeroSlot = 1, kFirstLayerSlot = 2;
  static constexpr size_t kMaxPending = 8192;                   // more: a write or zero flushes first
  static constexpr uint64_t kCopyUpBlocks = 16;                 // writers, and a fork, wait for one such step
  static constexpr uint64_t kCopyUpWindow = 16 * kChunkBlocks;  // of the map looked at in one step
  static constexpr uint64_t kCopyUpLayerBlocks = 8192;          // larger layers are left to the daemon's merge,
  static constexpr size_t kLayersAlarming = 128;                // unless there are so many
  static constexpr uint64_t kWritebackBytes = 8ull << 20;       // dirty data that starts writeback

  OverlayStack(std::unique_ptr<BlockSource> base, uint64_t blocks) : base_(std::move(base)), map_(blocks) {}
  Status add_layer(OverlayFiles files, bool writable, HostHistory history, bool named_durable);
  Result<Slot> free_slot() const;
  Status replay(const Layer& layer, const MapLogScan& scan, uint64_t records, Slot slot);
  std::unique_lock<std::mutex> lock_unheld() const;
  void note(RecordKind kind, BlockRange range, bool punch);
  bool dirty() const { return written_ != synced_; }
  Result<bool> flush_once();
  Result<FlushPlan> plan_flush();
  Status sync_plan(const FlushPlan& plan);
  Result<bool> record_plan(FlushPlan& plan);
  void punch(const FlushPlan& plan);
  void prune_frozen();
  size_t layers_needed() const;
  std::optional<Slot> smallest_frozen(size_t layers_wanted) const;
  Result<bool> copy_up(Slot slot, uint64_t epoch);
  void drop_writable();
  Status flush_if_crowded();
  Status fail_sync(Status status);

  const std::unique_ptr<BlockSource> base_;

  // Writers share it for the length of a write; punching and freezing take it alone.
  mutable std::shared_mutex io_mutex_;
  // One flush at a time. Held across syncs.
  std::mutex flush_mutex_;

  mutable std::mutex state_mutex_;  // guards everything below; never held across a sync
  mutable std::condition_variable released_;
  bool held_ = false;
  BlockMap map_;
  // Shared: a flush may still sync a layer that was replaced meanwhile.
  std::array<std::shared_ptr<Layer>, 256> slots_;
  std::vector<Slot> frozen_;  // oldest first
  Slot current_ = kBaseSlot;  // kBaseSlot: no writable overlay
  std::optional<MapLogWriter> log_;
  bool header_synced_ = false;
  bool log_dirty_ = false;
  bool touched_ = false;
  std::vector<Pending> pending_;  // changes of presence not yet in the log, in order
  size_t flushing_ = 0;           // the first ones, which a flush in progress has copied
  uint64_t written_ = 0;          // writes completed
  uint64_t synced_ = 0;           // of these, known durable
  uint64_t unsynced_bytes_ = 0;   // since writeback was started last
  uint64_t epoch_ = 0;            // counts freezes and changes of the top
  bool sync_failed_ = false;
};

}  // namespace ramet::image
