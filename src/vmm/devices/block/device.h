// vmm/devices/block/device.h - virtio-blk (virtio 1.2, section 5.2) over an image::BlockTarget: one queue, 4096-byte blocks,
// FLUSH, DISCARD, WRITE_ZEROES, GET_ID. Not here: overlays and their change at a fork (disk.h), decoding (request.h).
//
// A kick is handled on the vCPU's thread: reads that the page cache can answer and small writes are done there, everything that
// may sleep goes to a worker. Measured (block_bench): a hand-over costs several times a cached 4 KiB transfer.
//
// quiesce() awaits reads, writes and zeroes but not flushes, which may take 200 ms: a flush in flight is remembered by the head
// of its chain. In the parent its worker waits until resume() and begins anew; a child (or a restored machine) reads the chain
// again and issues it itself. Neither is lost, neither is answered twice.
//
// Thread: as VirtioDevice; workers lock the device mutex to complete. Owner: the composition.
//   io worker (up to 3):   reads not in the page cache, large writes, zeroes, the target's upkeep   stop: pool destructor
//   flush worker (1):      flushes                                                  stop: pool destructor
#pragma once

#include <linux/virtio_ids.h>

#include <condition_variable>
#include <string>
#include <vector>

#include "image/source.h"
#include "vmm/devices/block/metrics.h"
#include "vmm/devices/block/request.h"
#include "vmm/devices/block/workers.h"
#include "vmm/virtio/device.h"

namespace ramet::vmm {

class BlockDevice final : public VirtioDevice {
 public:
  struct Options {
    std::string id;  // at most 20 bytes are shown to the guest
    bool read_only = false;
  };

  // Requires: target outlives it.
  BlockDevice(image::BlockTarget& target, Options options);
  ~BlockDevice() override;

  void attach(std::mutex& device_mutex) override { mutex_ = &device_mutex; }
  void detach() override;
  uint32_t device_id() const override { return VIRTIO_ID_BLOCK; }
  uint64_t offered_features() const override;
  std::vector<uint16_t> queue_sizes() const override { return {kQueueSize}; }
  void read_config(uint64_t offset, std::span<std::byte> out) const override;
  void write_config(uint64_t, std::span<const std::byte>) override {}
  void activate(const DeviceContext& context) override;
  void queue_notify(uint16_t queue) override;
  void reset() override;
  Status quiesce(Deadline deadline) override;
  void resume() override;
  std::string save() const override;
  Status restore(std::string_view state) override;
  void after_fork() override;

  const BlockMetrics& metrics() const { return metrics_; }

 private:
  static constexpr uint16_t kQueueSize = 256;
  static constexpr uint32_t kMaxSegments = kQueueSize - 2;  // header and status take two
  static constexpr uint32_t kMaxSegmentBytes = 1u << 20;
  static constexpr uint64_t kInlineWriteBytes = 64u << 10;
  static constexpr unsigned kRequestsPerTurn = kQueueSize;  // then others get the vCPU and the lock
  static constexpr size_t kIoWorkers = 3;
  static constexpr unsigned kErrorsTold = 8;  // then the log has seen enough of them

  struct Job {
    enum class Kind { kRequest, kTurn, kUpkeep } kind = Kind::kRequest;  // kTurn: take requests from the queue
    BlockRequest request;
  };

  bool take_requests();
  void handle(BlockRequest& request);
  bool try_inline(BlockRequest& request);
  void hand_over(BlockRequest& request);
  void run_io(Job job);
  void run_flush(Job job);
  uint8_t carry_out(BlockRequest& request);
  uint8_t status_of(const Status& status);
  // Both with the device mutex held.
  void finish(BlockRequest& request, uint8_t status);
  void notify_guest();
  void reissue_flushes();
  void release_all();
  void start_upkeep();
  void run_upkeep();

  image::BlockTarget& target_;
  const Options options_;
  BlockMetrics metrics_;
  std::mutex* mutex_ = nullptr;  // the transport's; guards all below
  DeviceContext context_;
  bool active_ = false;
  bool quiesced_ = false;
  bool ending_ = false;
  bool turn_queued_ = false;
  bool upkeep_queued_ = false;
  bool reissue_on_resume_ = false;   // flushes_ have no worker: after a fork or restore
  uint64_t generation_ = 0;          // counts resets
  unsigned in_flight_ = 0;           // reads, writes and zeroes with workers
  std::vector<uint16_t> flushes_;    // heads of flushes in flight
  std::condition_variable changed_;  // in_flight_, quiesced_, ending_
  DescriptorChain chain_;
  BlockRequest request_;
  std::atomic<bool> told_no_space_ = false;
  std::atomic<unsigned> errors_told_ = 0;
  WorkerPool<Job> io_;
  WorkerPool<Job> flush_;
};

}  // namespace ramet::vmm
