// vmm/devices/block/request.h - one virtio-blk request (virtio 1.2, section 5.2.6): decoded from a copied descriptor chain and
// checked against the disk. Not here: carrying it out (device.h), rings.
//
// A BlockRequest is a move-only token for a chain the device holds: it ends by complete() or abandon(), each of which hands out
// what is left to do; dropping it is a bug of ours and fails in debug builds.
// Thread: a value of whoever works on it.
#pragma once

#include <linux/virtio_blk.h>
#include <sys/uio.h>

#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "image/block.h"
#include "vmm/virtio/queue.h"

namespace ramet::vmm {

inline constexpr uint64_t kSectorBytes = 512;  // the unit of the protocol, whatever blk_size says
inline constexpr uint64_t kMaxRequestBytes = 64ull << 20;
inline constexpr uint32_t kMaxZeroSegments = 16;
inline constexpr size_t kDiskIdBytes = VIRTIO_BLK_ID_BYTES;

enum class BlockOperation {
  kRead,
  kWrite,
  kFlush,
  kZero,  // VIRTIO_BLK_T_DISCARD and _WRITE_ZEROES: both read as zero afterwards
  kGetId,
  kReject,  // answered with `reject_status`
};

class BlockRequest {
 public:
  BlockRequest() = default;
  BlockRequest(BlockRequest&& o) noexcept { *this = std::move(o); }
  BlockRequest& operator=(BlockRequest&& o) noexcept {
    assert(!open_);
    operation = o.operation;
    reject_status = o.reject_status;
    range = o.range;
    buffers = std::move(o.buffers);
    zeroes = std::move(o.zeroes);
    head_ = o.head_;
    status_address_ = o.status_address_;
    generation_ = o.generation_;
    open_ = std::exchange(o.open_, false);
    return *this;
  }
  ~BlockRequest() { assert(!open_ && "a block request was dropped"); }

  // Decodes into this token (buffers are reused). False: there is no place for a status, so the chain cannot be answered; the
  // token then stays closed.   Requires: closed.
  [[nodiscard]] bool begin(const GuestMemory& memory, const DescriptorChain& chain, uint64_t disk_blocks, uint64_t generation);

  struct Completion {
    uint16_t head;
    GuestAddr status_address;
  };
  Completion complete() {
    open_ = false;
    return {head_, status_address_};
  }
  void abandon() { open_ = false; }
  uint16_t head() const { return head_; }
  uint64_t generation() const { return generation_; }  // of the device when it was taken; a reset makes it stale

  BlockOperation operation = BlockOperation::kReject;
  uint8_t reject_status = VIRTIO_BLK_S_IOERR;
  image::BlockRange range;                // kRead, kWrite
  std::vector<iovec> buffers;             // kRead, kWrite, kGetId: guest memory
  std::vector<image::BlockRange> zeroes;  // kZero

 private:
  void decode(const GuestMemory& memory, const DescriptorChain& chain, uint64_t disk_blocks);
  void decode_transfer(uint64_t sector, uint64_t bytes, uint64_t disk_blocks, BlockOperation as);
  void decode_zeroes(const GuestMemory& memory, const DescriptorChain& chain, uint32_t type, uint64_t disk_blocks);
  void reject(uint8_t status) {
    operation = BlockOperation::kReject;
    reject_status = status;
  }

  uint16_t head_ = 0;
  GuestAddr status_address_;
  uint64_t generation_ = 0;
  bool open_ = false;
};

}  // namespace ramet::vmm
