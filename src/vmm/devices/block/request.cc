#include "vmm/devices/block/request.h"

#include <algorithm>
#include <optional>

#include "base/endian.h"

namespace ramet::vmm {
namespace {

struct RequestHeader {  // struct virtio_blk_outhdr
  le32 type;
  le32 io_priority;
  le64 sector;
};
static_assert(sizeof(RequestHeader) == sizeof(virtio_blk_outhdr));

struct ZeroSegment {  // struct virtio_blk_discard_write_zeroes
  le64 sector;
  le32 sectors;
  le32 flags;
};
static_assert(sizeof(ZeroSegment) == sizeof(virtio_blk_discard_write_zeroes));

constexpr uint64_t kSectorsPerBlock = image::kBlockBytes / kSectorBytes;

// nullopt: not whole blocks, empty, or not on the disk.
std::optional<image::BlockRange> blocks_of(uint64_t sector, uint64_t sectors, uint64_t disk_blocks) {
  if (sectors == 0 || sector % kSectorsPerBlock != 0 || sectors % kSectorsPerBlock != 0) return std::nullopt;
  const image::BlockRange range{sector / kSectorsPerBlock, sectors / kSectorsPerBlock};
  if (!image::range_fits(range, disk_blocks)) return std::nullopt;
  return range;
}

}  // namespace

bool BlockRequest::begin(const GuestMemory& memory, const DescriptorChain& chain, uint64_t disk_blocks, uint64_t generation) {
  assert(!open_);
  if (chain.writable().empty()) return false;
  // The last writable byte takes the status.
  const Segment& last = chain.writable().back();
  status_address_ = {last.address.value + last.length - 1};
  head_ = chain.head();
  generation_ = generation;
  range = {};
  buffers.clear();
  zeroes.clear();
  open_ = true;
  decode(memory, chain, disk_blocks);
  return true;
}

void BlockRequest::decode(const GuestMemory& memory, const DescriptorChain& chain, uint64_t disk_blocks) {
  RequestHeader header;
  if (!chain.read(memory, 0, std::as_writable_bytes(std::span(&header, 1)))) return reject(VIRTIO_BLK_S_IOERR);
  const uint64_t out_bytes = chain.readable_bytes() - sizeof header;
  const uint64_t in_bytes = chain.writable_bytes() - 1;
  switch (header.type) {
    case VIRTIO_BLK_T_IN:
      decode_transfer(header.sector, in_bytes, disk_blocks, BlockOperation::kRead);
      if (operation == BlockOperation::kRead && !chain.writable_iovecs(memory, 0, in_bytes, buffers))
        reject(VIRTIO_BLK_S_IOERR);
      return;
    case VIRTIO_BLK_T_OUT:
      decode_transfer(header.sector, out_bytes, disk_blocks, BlockOperation::kWrite);
      if (operation == BlockOperation::kWrite && !chain.readable_iovecs(memory, sizeof header, out_bytes, buffers))
        reject(VIRTIO_BLK_S_IOERR);
      return;
    case VIRTIO_BLK_T_FLUSH: operation = BlockOperation::kFlush; return;
    case VIRTIO_BLK_T_DISCARD:
    case VIRTIO_BLK_T_WRITE_ZEROES: return decode_zeroes(memory, chain, header.type, disk_blocks);
    case VIRTIO_BLK_T_GET_ID:
      operation = BlockOperation::kGetId;
      if (!chain.writable_iovecs(memory, 0, std::min<uint64_t>(in_bytes, kDiskIdBytes), buffers)) reject(VIRTIO_BLK_S_IOERR);
      return;
    default: return reject(VIRTIO_BLK_S_UNSUPP);
  }
}

void BlockRequest::decode_transfer(uint64_t sector, uint64_t bytes, uint64_t disk_blocks, BlockOperation as) {
  // blk_size is 4096, so a driver never asks for less.
  if (bytes % kSectorBytes != 0 || bytes > kMaxRequestBytes) return reject(VIRTIO_BLK_S_IOERR);
  const std::optional<image::BlockRange> blocks = blocks_of(sector, bytes / kSectorBytes, disk_blocks);
  if (!blocks) return reject(VIRTIO_BLK_S_IOERR);
  operation = as;
  range = *blocks;
}

void BlockRequest::decode_zeroes(const GuestMemory& memory, const DescriptorChain& chain, uint32_t type, uint64_t disk_blocks) {
  const uint64_t bytes = chain.readable_bytes() - sizeof(RequestHeader);
  if (bytes == 0 || bytes % sizeof(ZeroSegment) != 0 || bytes / sizeof(ZeroSegment) > kMaxZeroSegments)
    return reject(VIRTIO_BLK_S_IOERR);
  for (uint64_t at = 0; at < bytes; at += sizeof(ZeroSegment)) {
    ZeroSegment segment;
    if (!chain.read(memory, sizeof(RequestHeader) + at, std::as_writable_bytes(std::span(&segment, 1))))
      return reject(VIRTIO_BLK_S_IOERR);
    // Section 5.2.6.2: discard takes no flag, write-zeroes only "unmap".
    const uint32_t allowed = type == VIRTIO_BLK_T_WRITE_ZEROES ? VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP : 0;
    if (segment.flags & ~allowed) return reject(VIRTIO_BLK_S_UNSUPP);
    const std::optional<image::BlockRange> blocks = blocks_of(segment.sector, segment.sectors, disk_blocks);
    if (!blocks) return reject(VIRTIO_BLK_S_IOERR);
    zeroes.push_back(*blocks);
  }
  operation = BlockOperation::kZero;
}

}  // namespace ramet::vmm
