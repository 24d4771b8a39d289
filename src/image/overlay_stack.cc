#include "image/overlay_stack.h"

#include <algorithm>

#include "base/log.h"
#include "image/iovecs.h"

namespace ramet::image {
namespace {

constexpr uint64_t kPunchBytesPerTurn = 64ull << 20;  // writers wait for one turn at most

Status bad_range(BlockRange range, uint64_t blocks) {
  return fail(ErrorKind::kInvalid, "blocks " + std::to_string(range.first) + "+" + std::to_string(range.count) +
                                       " are not on a disk of " + std::to_string(blocks));
}

}  // namespace

OverlayFiles overlay_from_descriptors(std::string id, UniqueFd data_rw, UniqueFd data_ro, UniqueFd log_rw, UniqueFd log_ro) {
  return {std::move(id), std::make_unique<PosixFile>(std::move(data_ro), std::move(data_rw)),
          std::make_unique<PosixFile>(std::move(log_ro), std::move(log_rw))};
}

// What one flush makes durable: taken under the lock, worked off without it.
struct OverlayStack::FlushPlan {
  uint64_t epoch = 0;
  std::shared_ptr<Layer> top;
  std::vector<std::shared_ptr<Layer>> lower;  // frozen ones that need a sync
  std::vector<Pending> pending;
  bool sync_data = false;
  bool sync_header = false;
  bool sync_log = false;
  uint64_t written = 0;
};

Result<std::unique_ptr<OverlayStack>> OverlayStack::open(std::unique_ptr<BlockSource> base, uint64_t size_blocks,
                                                         std::vector<OverlayFiles> frozen, std::optional<OverlayFiles> writable,
                                                         HostHistory history) {
  if (size_blocks == 0 || size_blocks > kMaxDiskBlocks)
    return fail(ErrorKind::kInvalid, "a disk of " + std::to_string(size_blocks) + " blocks is not possible");
  std::unique_ptr<OverlayStack> stack(new OverlayStack(std::move(base), size_blocks));
  // Which overlays a later one found durable; only needed when tentative records are doubtful.
  std::vector<uint64_t> durable_ids;
  if (history == HostHistory::kCrashed) {
    const auto collect = [&](const OverlayFiles& files) -> Status {
      TRY_ASSIGN(const MapLogScan scan, scan_map_log(*files.log, size_blocks));
      durable_ids.insert(durable_ids.end(), scan.lower_synced.begin(), scan.lower_synced.end());
      return {};
    };
    for (const OverlayFiles& files : frozen) TRY(collect(files));
    if (writable) TRY(collect(*writable));
  }
  for (OverlayFiles& files : frozen) {
    TRY_ASSIGN(const MapLogScan scan, scan_map_log(*files.log, size_blocks));
    const bool named = std::find(durable_ids.begin(), durable_ids.end(), scan.header.overlay_id) != durable_ids.end();
    TRY(stack->add_layer(std::move(files), false, history, named));
  }
  if (writable) TRY(stack->add_layer(std::move(*writable), true, history, false));
  return stack;
}

OverlayStack::~OverlayStack() = default;

Result<Slot> OverlayStack::free_slot() const {
  if (frozen_.size() >= kMaxLayers)
    return fail(ErrorKind::kConflict, "a disk has " + std::to_string(frozen_.size()) + " overlays, the most possible");
  for (size_t i = kFirstLayerSlot; i < slots_.size(); i++)
    if (!slots_[i]) return static_cast<Slot>(i);
  return fail(ErrorKind::kConflict, "no layer is free");
}

Status OverlayStack::add_layer(OverlayFiles files, bool writable, HostHistory history, bool named_durable) {
  TRY_ASSIGN(const Slot slot, free_slot());
  TRY_ASSIGN(const MapLogScan scan, scan_map_log(*files.log, size_blocks()));
  auto layer = std::make_shared<Layer>();
  layer->id = std::move(files.id);
  layer->data = std::move(files.data);
  layer->log = std::move(files.log);
  const bool believe_all = history == HostHistory::kSameBoot || named_durable;
  layer->needs_sync = !writable && scan.has_header && !scan.sealed && history == HostHistory::kSameBoot;
  if (writable) {
    TRY_ASSIGN(const uint64_t data_bytes, layer->data->size());
    if (data_bytes < size_blocks() * kBlockBytes) TRY(layer->data->resize(size_blocks() * kBlockBytes));
    TRY_ASSIGN(log_, MapLogWriter::begin(*layer->log, scan, size_blocks(), random_overlay_id()));
    layer->log_id = log_->overlay_id();
    header_synced_ = false;
    current_ = slot;
    touched_ = scan.records > 0;
    // What an earlier process wrote and did not flush is visible, so the next flush must cover it.
    if (scan.has_header) written_++;
    log_dirty_ = scan.has_header;
    // It was being frozen when its process ended, and is taken up again: the next flush makes its tentative records good.
    if (scan.durable_records != scan.records) pending_.push_back({RecordKind::kSeal, {}, false});
  } else {
    layer->log_id = scan.header.overlay_id;
    frozen_.push_back(slot);
  }
  slots_[slot] = layer;
  return scan.has_header ? replay(*layer, scan, believe_all ? scan.records : scan.durable_records, slot) : Status{};
}

Status OverlayStack::replay(const Layer& layer, const MapLogScan& scan, uint64_t records, Slot slot) {
  return visit_map_log(*layer.log, scan, records, [&](const MapRecord& record) {
    if (record.kind == RecordKind::kData) map_.set(record.range(), slot);
    if (record.kind == RecordKind::kZero) map_.set(record.range(), kZeroSlot);
  });
}

std::unique_lock<std::mutex> OverlayStack::lock_unheld() const {
  std::unique_lock lock(state_mutex_);
  released_.wait(lock, [this] { return !held_; });
  return lock;
}

Result<bool> OverlayStack::read(BlockRange range, std::span<const iovec> to, Wait wait) const {
  if (!range_fits(range, size_blocks())) return tl::unexpected(bad_range(range, size_blocks()).error());
  IovecCursor cursor(to);
  while (range.count > 0) {
    BlockMap::Run run;
    {
      const std::lock_guard lock(state_mutex_);
      run = map_.run_at(range);
    }
    uint64_t offset = run.range.first * kBlockBytes;
    uint64_t left = run.range.count * kBlockBytes;
    // Layers change only when no read is in progress, so their table needs no lock here.
    const BlockSource* base = run.slot == kBaseSlot ? base_.get() : nullptr;
    const Layer* layer = run.slot >= kFirstLayerSlot ? slots_[run.slot].get() : nullptr;
    if (!base && !layer) {
      cursor.zero(left);
      left = 0;
    }
    while (left > 0) {
      // A source takes whole blocks; buffers that are cut smaller than that make one piece list per call, at most kMaxPieces
      // long.
      const std::span<const iovec> pieces = cursor.peek(left);
      const uint64_t n = total_bytes(pieces);
      if (base && n % kBlockBytes != 0) return tl::unexpected(bad_range(range, size_blocks()).error());
      Result<bool> done =
          base ? base->read({offset / kBlockBytes, n / kBlockBytes}, pieces, wait) : layer->data->read(offset, pieces, wait);
      if (!done || !*done) return done;
      cursor.advance(n);
      offset += n;
      left -= n;
    }
    range = {run.range.end(), range.count - run.range.count};
  }
  return true;
}

Status OverlayStack::write(BlockRange range, std::span<const iovec> from) {
  if (!range_fits(range, size_blocks())) return bad_range(range, size_blocks());
  TRY(flush_if_crowded());
  bool writeback = false;
  {
    // Until the map says so the blocks are invisible (or old data being overwritten), and punching stays away.
    const std::shared_lock io(io_mutex_);
    if (current_ == kBaseSlot) return fail(ErrorKind::kPermission, "the disk is read-only");
    Layer& top = *slots_[current_];
    TRY(top.data->write(range.first * kBlockBytes, from));
    const std::unique_lock lock = lock_unheld();
    written_++;
    touched_ = true;
    map_.set(range, current_, [this](const BlockMap::Run& run) { note(RecordKind::kData, run.range, false); });
    unsynced_bytes_ += range.count * kBlockBytes;
    if (unsynced_bytes_ >= kWritebackBytes) {
      unsynced_bytes_ = 0;
      writeback = true;
    }
  }
  if (writeback) {
    const std::shared_lock io(io_mutex_);
    if (current_ != kBaseSlot) slots_[current_]->data->start_writeback();
  }
  return {};
}

Status OverlayStack::zero(BlockRange range) {
  if (!range_fits(range, size_blocks())) return bad_range(range, size_blocks());
  TRY(flush_if_crowded());
  const std::shared_lock io(io_mutex_);
  if (current_ == kBaseSlot) return fail(ErrorKind::kPermission, "the disk is read-only");
  const std::unique_lock lock = lock_unheld();
  while (range.count > 0) {
    const BlockMap::Run run = map_.run_at(range);
    const bool zero_already = run.slot == kZeroSlot || (run.slot == kBaseSlot && !base_);
    if (!zero_already) {
      touched_ = true;
      map_.set(run.range, kZeroSlot);
      note(RecordKind::kZero, run.range, run.slot == current_);
    }
    range = {run.range.end(), range.count - run.range.count};
  }
  return {};
}

void OverlayStack::note(RecordKind kind, BlockRange range, bool punch) {
  if (pending_.size() > flushing_) {
    Pending& last = pending_.back();
    if (last.kind == kind && last.range.end() == range.first) {
      last.range.count += range.count;
      last.punch |= punch;
      return;
    }
  }
  pending_.push_back({kind, range, punch});
}

Status OverlayStack::flush_if_crowded() {
  {
    const std::unique_lock lock = lock_unheld();
    if (pending_.size() < kMaxPending) return {};
  }
  return flush();
}

// After a failed sync the kernel may call the lost pages clean, so no later success can be believed.
Status OverlayStack::fail_sync(Status status) {
  const std::lock_guard lock(state_mutex_);
  sync_failed_ = true;
  return status;
}

Status OverlayStack::flush() {
  const std::lock_guard one(flush_mutex_);
  for (;;) {
    TRY_ASSIGN(const bool done, flush_once());
    if (done) return {};
  }
}

// False: the top was frozen or replaced meanwhile; everything is to be looked at again.
Result<bool> OverlayStack::flush_once() {
  TRY_ASSIGN(FlushPlan plan, plan_flush());
  if (!plan.top) return true;
  TRY(sync_plan(plan));
  TRY_ASSIGN(const bool recorded, record_plan(plan));
  if (!recorded) return false;
  if (plan.sync_log) {
    if (Status synced = plan.top->log->sync(); !synced) return tl::unexpected(fail_sync(std::move(synced)).error());
  }
  {
    const std::unique_lock lock = lock_unheld();
    if (epoch_ != plan.epoch) return false;
    if (plan.sync_log) log_dirty_ = false;
    if (plan.sync_log) header_synced_ = true;
  }
  punch(plan);
  return true;
}

Result<OverlayStack::FlushPlan> OverlayStack::plan_flush() {
  const std::unique_lock lock = lock_unheld();
  FlushPlan plan;
  if (sync_failed_) return fail(ErrorKind::kIo, "an earlier sync of this disk failed");
  if (current_ == kBaseSlot) return plan;
  plan.epoch = epoch_;
  plan.top = slots_[current_];
  for (const Slot slot : frozen_)
    if (slots_[slot]->needs_sync) plan.lower.push_back(slots_[slot]);
  plan.pending = pending_;
  flushing_ = pending_.size();
  plan.sync_data = dirty();
  plan.written = written_;
  plan.sync_log = log_dirty_ || !pending_.empty() || !plan.lower.empty();
  if (plan.sync_log && !header_synced_) {
    TRY(log_->write_header());
    plan.sync_header = true;
  }
  return plan;
}

Status OverlayStack::sync_plan(const FlushPlan& plan) {
  const auto sync = [this](const File& file) -> Status {
    Status s = file.sync();
    return s ? s : fail_sync(std::move(s));
  };
  for (const std::shared_ptr<Layer>& layer : plan.lower) {
    TRY(sync(*layer->data));
    TRY(sync(*layer->log));
  }
  if (plan.sync_data) TRY(sync(*plan.top->data));
  if (plan.sync_header) TRY(sync(*plan.top->log));
  return {};
}

Result<bool> OverlayStack::record_plan(FlushPlan& plan) {
  const std::unique_lock lock = lock_unheld();
  if (epoch_ != plan.epoch) return false;
  if (plan.sync_header) header_synced_ = true;
  if (plan.sync_data) synced_ = plan.written;
  std::vector<MapRecord> records;
  for (const std::shared_ptr<Layer>& layer : plan.lower)
    records.push_back({.kind = RecordKind::kLowerSynced, .first = layer->log_id});
  for (const Pending& p : plan.pending) records.push_back({.kind = p.kind, .first = p.range.first, .count = p.range.count});
  flushing_ = 0;
  if (!records.empty()) {
    TRY(log_->append(records));
    log_dirty_ = true;
  }
  for (const std::shared_ptr<Layer>& layer : plan.lower) layer->needs_sync = false;
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(plan.pending.size()));
  return true;
}

// The zero records are durable now, so the space of what is still zero can go.
void OverlayStack::punch(const FlushPlan& plan) {
  for (const Pending& p : plan.pending) {
    if (p.kind != RecordKind::kZero || !p.punch) continue;
    BlockRange range = p.range;
    while (range.count > 0) {
      const std::unique_lock io(io_mutex_);  // no write is in progress, and none begins
      BlockMap::Run run;
      {
        const std::unique_lock lock = lock_unheld();
        if (epoch_ != plan.epoch) return;
        run = map_.run_at({range.first, std::min(range.count, kPunchBytesPerTurn / kBlockBytes)});
      }
      if (run.slot == kZeroSlot) {
        // Only space is at stake: file systems without holes keep it.
        if (!plan.top->data->punch(run.range.first * kBlockBytes, run.range.count * kBlockBytes)) return;
      }
      range = {run.range.end(), range.count - run.range.count};
    }
  }
}

size_t OverlayStack::layers_needed() const {
  return static_cast<size_t>(
      std::count_if(frozen_.begin(), frozen_.end(), [this](Slot s) { return map_.count(s) > 0 || slots_[s]->needs_sync; }));
}

// The one that is cheapest to copy. nullopt: few enough are needed, or all are large.
std::optional<Slot> OverlayStack::smallest_frozen(size_t layers_wanted) const {
  if (current_ == kBaseSlot || layers_needed() <= layers_wanted) return std::nullopt;
  std::optional<Slot> best;
  for (const Slot slot : frozen_)
    if (map_.count(slot) > 0 && (!best || map_.count(slot) < map_.count(*best))) best = slot;
  if (best && map_.count(*best) > kCopyUpLayerBlocks && frozen_.size() < kLayersAlarming) return std::nullopt;
  return best;
}

bool OverlayStack::wants_upkeep() const {
  const std::lock_guard lock(state_mutex_);
  return !sync_failed_ && smallest_frozen(kLayersWanted).has_value();
}

Status OverlayStack::upkeep_to(size_t layers) {
  TRY(flush());  // a layer that still needs a sync could not be closed
  for (;;) {
    std::optional<Slot> slot;
    uint64_t epoch = 0;
    {
      const std::unique_lock lock = lock_unheld();
      slot = smallest_frozen(layers);
      epoch = epoch_;
    }
    if (!slot) return {};
    TRY_ASSIGN(const bool same, copy_up(*slot, epoch));
    if (!same) return {};  // frozen meanwhile: the next resume asks again
  }
}

// False: the layers changed.
Result<bool> OverlayStack::copy_up(Slot slot, uint64_t epoch) {
  std::vector<std::byte> buffer(kCopyUpBlocks * kBlockBytes);
  for (BlockRange left{0, size_blocks()}; left.count > 0;) {
    TRY(flush_if_crowded());
    // Alone: a write of the guest between our read and our write would be lost.
    const std::unique_lock io(io_mutex_);
    BlockMap::Run run;
    {
      const std::unique_lock lock = lock_unheld();
      if (epoch_ != epoch) return false;
      if (map_.count(slot) == 0) return true;
      const uint64_t window_end = std::min(left.end(), left.first + kCopyUpWindow);
      run = map_.run_at({left.first, window_end - left.first});
      while (run.slot != slot && run.range.end() < window_end)
        run = map_.run_at({run.range.end(), window_end - run.range.end()});
    }
    if (run.slot != slot) {
      left = {run.range.end(), left.end() - run.range.end()};
      continue;
    }
    run.range.count = std::min(run.range.count, kCopyUpBlocks);
    const std::span<std::byte> bytes = std::span(buffer).first(run.range.count * kBlockBytes);
    TRY(read_all(*slots_[slot]->data, run.range.first * kBlockBytes, bytes));
    TRY(write_all(*slots_[current_]->data, run.range.first * kBlockBytes, bytes));
    const std::unique_lock lock = lock_unheld();
    if (epoch_ != epoch) return false;
    written_++;
    touched_ = true;
    map_.set(run.range, current_);
    note(RecordKind::kData, run.range, false);
    unsynced_bytes_ += bytes.size();
    left = {run.range.end(), left.end() - run.range.end()};
  }
  return true;
}

void OverlayStack::hold() {
  // Waits for a punch in progress: it uses the writer that freezing closes.
  const std::unique_lock io(io_mutex_);
  const std::lock_guard lock(state_mutex_);
  held_ = true;
}

void OverlayStack::release() {
  const std::lock_guard lock(state_mutex_);
  held_ = false;
  released_.notify_all();
}

Result<bool> OverlayStack::freeze() {
  const std::lock_guard lock(state_mutex_);
  if (current_ == kBaseSlot || !touched_) return false;
  if (frozen_.size() >= kMaxLayers) return tl::unexpected(free_slot().error());
  Layer& top = *slots_[current_];
  const bool durable = pending_.empty() && !dirty() && !log_dirty_;
  if (!durable) {
    std::vector<MapRecord> records{{.kind = RecordKind::kFreeze}};
    for (const Pending& p : pending_)
      if (p.kind != RecordKind::kSeal) records.push_back({.kind = p.kind, .first = p.range.first, .count = p.range.count});
    TRY(log_->append(records));
  }
  top.needs_sync = !durable;
  top.data->drop_writer();
  top.log->drop_writer();
  frozen_.push_back(current_);
  current_ = kBaseSlot;
  drop_writable();
  prune_frozen();
  return true;
}

// A layer that no block comes from any more, and that no flush waits for, is closed. (Its files are the daemon's.)
void OverlayStack::prune_frozen() {
  std::erase_if(frozen_, [this](Slot slot) {
    if (map_.count(slot) > 0 || slots_[slot]->needs_sync) return false;
    slots_[slot].reset();
    return true;
  });
}

// Forgets everything about the top but the map.
void OverlayStack::drop_writable() {
  if (current_ != kBaseSlot) {
    // Closed here and not by the last owner: a flush in progress, or in a child what is left of the parent's, may own it as
    // well.
    slots_[current_]->data->drop_writer();
    slots_[current_]->log->drop_writer();
    slots_[current_].reset();
  }
  current_ = kBaseSlot;
  log_.reset();
  header_synced_ = log_dirty_ = touched_ = false;
  pending_.clear();
  flushing_ = 0;
  synced_ = written_;
  unsynced_bytes_ = 0;
  epoch_++;
}

Status OverlayStack::drop_untouched() {
  const std::lock_guard lock(state_mutex_);
  if (current_ != kBaseSlot && touched_)
    return fail(ErrorKind::kConflict, "the writable overlay holds blocks and is not frozen");
  drop_writable();
  return {};
}

Status OverlayStack::start_writable(OverlayFiles files) {
  TRY(drop_untouched());
  const std::lock_guard lock(state_mutex_);
  return add_layer(std::move(files), true, HostHistory::kSameBoot, false);
}

Status OverlayStack::replace_frozen(size_t first, size_t count, OverlayFiles merged) {
  const std::lock_guard lock(state_mutex_);
  if (count == 0 || first > frozen_.size() || count > frozen_.size() - first)
    return fail(ErrorKind::kInvalid, "there are no frozen overlays " + std::to_string(first) + "+" + std::to_string(count));
  TRY_ASSIGN(const MapLogScan scan, scan_map_log(*merged.log, size_blocks()));
  // The merged one must hold every block that comes from one of those it replaces.
  BlockMap held(size_blocks());
  TRY(visit_map_log(*merged.log, scan, scan.records, [&](const MapRecord& record) {
    if (record.kind == RecordKind::kData) held.set(record.range(), kFirstLayerSlot);
    if (record.kind == RecordKind::kZero) held.set(record.range(), kZeroSlot);
  }));
  const std::vector<Slot> old(frozen_.begin() + static_cast<ptrdiff_t>(first),
                              frozen_.begin() + static_cast<ptrdiff_t>(first + count));
  for (BlockRange range{0, size_blocks()}; range.count > 0;) {
    const BlockMap::Run run = map_.run_at(range);
    if (std::find(old.begin(), old.end(), run.slot) != old.end()) {
      const BlockMap::Run have = held.run_at(run.range);
      if (have.slot != kFirstLayerSlot || have.range.count != run.range.count)
        return fail(ErrorKind::kCorrupt, "merged overlay lacks blocks of those it replaces");
    }
    range = {run.range.end(), range.count - run.range.count};
  }
  TRY_ASSIGN(const Slot slot, free_slot());
  auto layer = std::make_shared<Layer>();
  layer->id = std::move(merged.id);
  layer->log_id = scan.header.overlay_id;
  layer->data = std::move(merged.data);
  layer->log = std::move(merged.log);
  layer->needs_sync = !scan.sealed;
  slots_[slot] = std::move(layer);
  for (const Slot o : old) {
    map_.rename(o, slot);
    slots_[o].reset();
  }
  frozen_.erase(frozen_.begin() + static_cast<ptrdiff_t>(first), frozen_.begin() + static_cast<ptrdiff_t>(first + count));
  frozen_.insert(frozen_.begin() + static_cast<ptrdiff_t>(first), slot);
  epoch_++;
  return {};
}

void OverlayStack::after_fork() {
  // Safety: single-threaded here; the threads that used these do not exist in this process.
  std::construct_at(&io_mutex_);
  std::construct_at(&flush_mutex_);
  std::construct_at(&state_mutex_);
  std::construct_at(&released_);
  flushing_ = 0;
  if (base_) base_->after_fork();
}

size_t OverlayStack::frozen_count() const {
  const std::lock_guard lock(state_mutex_);
  return frozen_.size();
}

std::vector<std::string> OverlayStack::frozen_ids() const {
  const std::lock_guard lock(state_mutex_);
  std::vector<std::string> ids;
  for (const Slot slot : frozen_) ids.push_back(slots_[slot]->id);
  return ids;
}

std::string OverlayStack::writable_id() const {
  const std::lock_guard lock(state_mutex_);
  return current_ == kBaseSlot ? std::string() : slots_[current_]->id;
}

uint64_t OverlayStack::writable_data_blocks() const {
  const std::lock_guard lock(state_mutex_);
  return current_ == kBaseSlot ? 0 : map_.count(current_);
}

bool OverlayStack::writable_touched() const {
  const std::lock_guard lock(state_mutex_);
  return touched_;
}

std::vector<int> OverlayStack::descriptors() const {
  const std::lock_guard lock(state_mutex_);
  std::vector<int> out;
  if (base_) base_->append_descriptors(out);
  for (const std::shared_ptr<Layer>& layer : slots_) {
    if (!layer) continue;
    layer->data->append_descriptors(out);
    layer->log->append_descriptors(out);
  }
  return out;
}

OverlayStack::Extent OverlayStack::extent_at(BlockRange range) const {
  const std::lock_guard lock(state_mutex_);
  const BlockMap::Run run = map_.run_at(range);
  using Origin = Extent::Origin;
  return {run.range, run.slot == kBaseSlot ? Origin::kBase : run.slot == kZeroSlot ? Origin::kZero : Origin::kOverlay};
}

BlockSource::Content OverlayStack::content_at(BlockRange range) const {
  const Extent extent = extent_at(range);
  if (extent.origin == Extent::Origin::kBase && base_) return base_->content_at(extent.range);
  return {extent.range, extent.origin != Extent::Origin::kOverlay};
}

}  // namespace ramet::image
