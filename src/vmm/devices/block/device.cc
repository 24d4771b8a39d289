#include "vmm/devices/block/device.h"

#include <algorithm>
#include <cstring>

#include "base/endian.h"
#include "base/log.h"
#include "vmm/devices/block/state.h"

namespace ramet::vmm {
namespace {

struct BlockConfig {  // struct virtio_blk_config (section 5.2.4) up to write_zeroes_may_unmap
  le64 capacity;      // in sectors
  le32 size_max;
  le32 seg_max;
  le16 cylinders;
  uint8_t heads, sectors;
  le32 blk_size;
  uint8_t physical_block_exp, alignment_offset;
  le16 min_io_size;
  le32 opt_io_size;
  uint8_t writeback, unused0;
  le16 num_queues;
  le32 max_discard_sectors;
  le32 max_discard_seg;
  le32 discard_sector_alignment;
  le32 max_write_zeroes_sectors;
  le32 max_write_zeroes_seg;
  uint8_t write_zeroes_may_unmap;
  uint8_t unused1[3];
};
static_assert(sizeof(BlockConfig) == 60);

constexpr uint32_t kMaxZeroSectors = (1u << 30) / kSectorBytes;  // 1 GiB per segment

void count(std::atomic<uint64_t>& counter, uint64_t n = 1) { counter.fetch_add(n, std::memory_order_relaxed); }

}  // namespace

BlockDevice::BlockDevice(image::BlockTarget& target, Options options)
    : target_(target),
      options_(std::move(options)),
      io_(kIoWorkers, [this](Job job) { run_io(std::move(job)); }),
      flush_(1, [this](Job job) { run_flush(std::move(job)); }) {}

BlockDevice::~BlockDevice() { detach(); }

void BlockDevice::detach() {
  if (!mutex_) return;
  {
    const std::lock_guard lock(*mutex_);
    ending_ = true;
    active_ = false;
    generation_++;
    if (quiesced_) release_all();
    quiesced_ = false;
    changed_.notify_all();
  }
  flush_.stop();
  io_.stop();
  mutex_ = nullptr;
}

uint64_t BlockDevice::offered_features() const {
  const uint64_t common = (1ull << VIRTIO_BLK_F_SIZE_MAX) | (1ull << VIRTIO_BLK_F_SEG_MAX) | (1ull << VIRTIO_BLK_F_BLK_SIZE);
  if (options_.read_only) return common | (1ull << VIRTIO_BLK_F_RO);
  return common | (1ull << VIRTIO_BLK_F_FLUSH) | (1ull << VIRTIO_BLK_F_DISCARD) | (1ull << VIRTIO_BLK_F_WRITE_ZEROES);
}

void BlockDevice::read_config(uint64_t offset, std::span<std::byte> out) const {
  BlockConfig config{};
  config.capacity = target_.size_blocks() * (image::kBlockBytes / kSectorBytes);
  config.size_max = kMaxSegmentBytes;
  config.seg_max = kMaxSegments;
  config.blk_size = static_cast<uint32_t>(image::kBlockBytes);
  config.num_queues = uint16_t{1};
  config.max_discard_sectors = kMaxZeroSectors;
  config.max_discard_seg = kMaxZeroSegments;
  config.discard_sector_alignment = static_cast<uint32_t>(image::kBlockBytes / kSectorBytes);
  config.max_write_zeroes_sectors = kMaxZeroSectors;
  config.max_write_zeroes_seg = kMaxZeroSegments;
  config.write_zeroes_may_unmap = 1;
  if (offset >= sizeof config) return;  // the transport has cleared `out`
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&config, 1)).subspan(offset);
  std::copy_n(bytes.begin(), std::min(bytes.size(), out.size()), out.begin());
}

void BlockDevice::activate(const DeviceContext& context) {
  context_ = context;
  active_ = true;
}

void BlockDevice::queue_notify(uint16_t) {
  if (!active_ || quiesced_) return;
  if (take_requests() || turn_queued_) return;
  Job job{.kind = Job::Kind::kTurn};
  turn_queued_ = io_.submit(job);
}

// False: there may be more, but it is somebody else's turn.
bool BlockDevice::take_requests() {
  Queue& queue = context_.queues[0];
  bool emptied = false;
  for (unsigned i = 0; i < kRequestsPerTurn && !emptied; i++) {
    if (queue.pop(chain_) != Queue::Pop::kChain) {
      emptied = true;
    } else if (!request_.begin(*context_.memory, chain_, target_.size_blocks(), generation_)) {
      queue.mark_broken();
      emptied = true;
    } else {
      handle(request_);
    }
  }
  notify_guest();
  return emptied;
}

void BlockDevice::handle(BlockRequest& request) {
  switch (request.operation) {
    case BlockOperation::kReject: return finish(request, request.reject_status);
    case BlockOperation::kGetId: {
      char id[kDiskIdBytes] = {};
      std::memcpy(id, options_.id.data(), std::min(options_.id.size(), sizeof id));
      size_t done = 0;
      for (const iovec& v : request.buffers) {
        std::memcpy(v.iov_base, id + done, v.iov_len);
        done += v.iov_len;
      }
      return finish(request, VIRTIO_BLK_S_OK);
    }
    case BlockOperation::kFlush:
      count(metrics_.flushes);
      flushes_.push_back(request.head());
      return hand_over(request);
    case BlockOperation::kRead: count(metrics_.reads); break;
    case BlockOperation::kWrite: count(metrics_.writes); break;
    case BlockOperation::kZero: count(metrics_.zeroes); break;
  }
  const bool changes = request.operation != BlockOperation::kRead;
  if (changes && options_.read_only) return finish(request, VIRTIO_BLK_S_IOERR);
  if (!try_inline(request)) hand_over(request);
}

bool BlockDevice::try_inline(BlockRequest& request) {
  if (request.operation == BlockOperation::kRead) {
    const Result<bool> done = target_.read(request.range, request.buffers, image::Wait::kNever);
    if (!done || !*done) return false;  // the worker meets the error again and reports it
    count(metrics_.reads_inline);
    finish(request, VIRTIO_BLK_S_OK);
    return true;
  }
  const uint64_t bytes = request.range.count * image::kBlockBytes;
  if (request.operation != BlockOperation::kWrite || bytes > kInlineWriteBytes) return false;
  finish(request, status_of(target_.write(request.range, request.buffers)));
  return true;
}

void BlockDevice::hand_over(BlockRequest& request) {
  const bool is_flush = request.operation == BlockOperation::kFlush;
  Job job{.request = std::move(request)};
  if (!is_flush) in_flight_++;
  if ((is_flush ? flush_ : io_).submit(job)) return;
  // No thread can be had: slow, but done. (A flush here would wait for itself only if the device were quiesced, and it is not.)
  const uint8_t status = carry_out(job.request);
  if (!is_flush) in_flight_--;
  finish(job.request, status);
}

void BlockDevice::run_io(Job job) {
  if (job.kind == Job::Kind::kUpkeep) return run_upkeep();
  if (job.kind == Job::Kind::kTurn) {
    const std::lock_guard lock(*mutex_);
    turn_queued_ = false;
    if (active_) queue_notify(0);
    return;
  }
  const uint8_t status = carry_out(job.request);
  const std::lock_guard lock(*mutex_);
  finish(job.request, status);
  in_flight_--;
  if (in_flight_ == 0) changed_.notify_all();
  notify_guest();
}

void BlockDevice::run_flush(Job job) {
  const uint8_t status = carry_out(job.request);
  std::unique_lock lock(*mutex_);
  // Nothing of this process may change while it is being forked or saved.
  changed_.wait(lock, [this] { return !quiesced_ || ending_; });
  finish(job.request, status);
  notify_guest();
}

uint8_t BlockDevice::carry_out(BlockRequest& request) {
  switch (request.operation) {
    case BlockOperation::kRead: {
      const Result<bool> done = target_.read(request.range, request.buffers, image::Wait::kAllowed);
      return done ? VIRTIO_BLK_S_OK : status_of(tl::unexpected(done.error()));
    }
    case BlockOperation::kWrite: return status_of(target_.write(request.range, request.buffers));
    case BlockOperation::kFlush: return status_of(target_.flush());
    case BlockOperation::kZero:
      for (const image::BlockRange& range : request.zeroes)
        if (const Status s = target_.zero(range); !s) return status_of(s);
      return VIRTIO_BLK_S_OK;
    case BlockOperation::kGetId:
    case BlockOperation::kReject: break;
  }
  return VIRTIO_BLK_S_IOERR;
}

uint8_t BlockDevice::status_of(const Status& status) {
  if (status) return VIRTIO_BLK_S_OK;
  if (status.error().kind() == ErrorKind::kNoSpace) {
    if (!told_no_space_.exchange(true))
      log_error("disk " + options_.id + ": the host has no space left, the guest gets I/O errors: " + status.error().message());
  } else if (errors_told_.fetch_add(1) < kErrorsTold) {
    log_warn("disk " + options_.id + ": " + status.error().to_string());
  }
  return VIRTIO_BLK_S_IOERR;
}

void BlockDevice::finish(BlockRequest& request, uint8_t status) {
  if (request.generation() != generation_ || !active_) return request.abandon();  // the device was reset meanwhile
  const bool ok = status == VIRTIO_BLK_S_OK;
  uint64_t written = 0;
  if (ok && request.operation == BlockOperation::kRead) {
    written = request.range.count * image::kBlockBytes;
    count(metrics_.read_bytes, written);
  }
  if (ok && request.operation == BlockOperation::kWrite)
    count(metrics_.written_bytes, request.range.count * image::kBlockBytes);
  if (ok && request.operation == BlockOperation::kGetId) written = kDiskIdBytes;
  if (!ok) count(metrics_.errors);
  const BlockRequest::Completion completion = request.complete();
  if (request.operation == BlockOperation::kFlush) {
    const auto found = std::find(flushes_.begin(), flushes_.end(), completion.head);
    if (found != flushes_.end()) flushes_.erase(found);
  }
  (void)context_.memory->write_object(completion.status_address, status);
  context_.queues[0].push_used(completion.head, static_cast<uint32_t>(written + 1));
}

void BlockDevice::notify_guest() {
  if (active_ && context_.queues[0].needs_interrupt()) context_.raise_used();
}

void BlockDevice::reset() {
  generation_++;  // what is in flight is abandoned when it ends
  active_ = false;
  flushes_.clear();
  reissue_on_resume_ = false;
  // Reads in flight still write into memory that the guest takes for free once the reset is done.
  std::unique_lock lock(*mutex_, std::adopt_lock);
  changed_.wait(lock, [this] { return in_flight_ == 0; });
  lock.release();
}

Status BlockDevice::quiesce(Deadline deadline) {
  if (quiesced_) return {};
  quiesced_ = true;
  std::unique_lock lock(*mutex_, std::adopt_lock);
  const bool drained = changed_.wait_until(lock, deadline, [this] { return in_flight_ == 0; });
  lock.release();
  if (!drained) {
    quiesced_ = false;
    changed_.notify_all();
    return fail(ErrorKind::kTimeout, "disk " + options_.id + " has " + std::to_string(in_flight_) + " transfers in flight");
  }
  io_.hold();
  flush_.hold();
  target_.hold();
  return {};
}

void BlockDevice::resume() {
  if (quiesced_) release_all();
  quiesced_ = false;
  changed_.notify_all();
  if (reissue_on_resume_) reissue_flushes();
  start_upkeep();
}

void BlockDevice::start_upkeep() {
  if (upkeep_queued_ || !target_.wants_upkeep()) return;
  Job job{.kind = Job::Kind::kUpkeep};
  upkeep_queued_ = io_.submit(job);
}

void BlockDevice::run_upkeep() {
  static_cast<void>(status_of(target_.upkeep()));  // only says what went wrong: nothing is lost by a layer more
  const std::lock_guard lock(*mutex_);
  upkeep_queued_ = false;
}

void BlockDevice::release_all() {
  target_.release();
  flush_.release();
  io_.release();
}

void BlockDevice::reissue_flushes() {
  reissue_on_resume_ = false;
  std::vector<uint16_t> heads;
  heads.swap(flushes_);
  for (const uint16_t head : heads) {
    if (!active_ || !context_.queues[0].reload(head, chain_)) return;
    if (!request_.begin(*context_.memory, chain_, target_.size_blocks(), generation_)) return context_.queues[0].mark_broken();
    // The guest owns that memory and may have changed it: whatever it is now is carried out instead.
    handle(request_);
  }
  notify_guest();
}

std::string BlockDevice::save() const { return encode_block_state({.flushes = flushes_}); }

Status BlockDevice::restore(std::string_view state) {
  TRY_ASSIGN(const BlockState s, decode_block_state(state, kQueueSize));
  flushes_ = s.flushes;
  reissue_on_resume_ = !flushes_.empty();
  return {};
}

void BlockDevice::after_fork() {
  // Safety: the threads that waited here do not exist in this process.
  std::construct_at(&changed_);
  const auto drop = [](Job& job) { job.request.abandon(); };
  io_.after_fork(drop);
  flush_.after_fork(drop);
  in_flight_ = 0;
  turn_queued_ = upkeep_queued_ = false;
  reissue_on_resume_ = !flushes_.empty();
  target_.after_fork();
}

}  // namespace ramet::vmm
