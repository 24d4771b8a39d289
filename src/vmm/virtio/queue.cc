#include "vmm/virtio/queue.h"

#include <algorithm>
#include <atomic>

namespace ramet::vmm {
namespace {

constexpr uint64_t kDescriptorBytes = sizeof(vring_desc);
static_assert(kDescriptorBytes == 16 && sizeof(vring_used_elem) == 8);

// Calls f(host pointer, length) for the pieces of [offset, offset + length) of a part. False: the part is shorter.
template <class F>
bool for_each_piece(const GuestMemory& memory, std::span<const Segment> part, uint64_t offset, uint64_t length, F f) {
  for (const Segment& s : part) {
    if (length == 0) return true;
    if (offset >= s.length) {
      offset -= s.length;
      continue;
    }
    const uint64_t n = std::min<uint64_t>(s.length - offset, length);
    std::byte* p = memory.resolve({s.address.value + offset}, n);
    if (!p) return false;
    f(p, n);
    offset = 0;
    length -= n;
  }
  return length == 0;
}

bool append_part(const GuestMemory& memory, std::span<const Segment> part, uint64_t offset, uint64_t length,
                 std::vector<iovec>& out) {
  return for_each_piece(memory, part, offset, length, [&](std::byte* p, uint64_t n) { out.push_back({p, n}); });
}

}  // namespace

void DescriptorChain::clear(uint16_t head) {
  head_ = head;
  readable_.clear();
  writable_.clear();
  readable_bytes_ = writable_bytes_ = 0;
}

bool DescriptorChain::read(const GuestMemory& memory, uint64_t offset, std::span<std::byte> out) const {
  std::byte* to = out.data();
  return for_each_piece(memory, readable_, offset, out.size(), [&](const std::byte* p, uint64_t n) {
    std::memcpy(to, p, n);
    to += n;
  });
}

bool DescriptorChain::write(const GuestMemory& memory, uint64_t offset, std::span<const std::byte> in) const {
  const std::byte* from = in.data();
  return for_each_piece(memory, writable_, offset, in.size(), [&](std::byte* p, uint64_t n) {
    std::memcpy(p, from, n);
    from += n;
  });
}

bool DescriptorChain::readable_iovecs(const GuestMemory& memory, uint64_t offset, uint64_t length,
                                      std::vector<iovec>& out) const {
  return append_part(memory, readable_, offset, length, out);
}

bool DescriptorChain::writable_iovecs(const GuestMemory& memory, uint64_t offset, uint64_t length,
                                      std::vector<iovec>& out) const {
  return append_part(memory, writable_, offset, length, out);
}

Status Queue::enable(const QueueLayout& layout, uint64_t features, const QueuePosition& position) {
  disable();
  const uint64_t n = layout.size;
  if (!is_power_of_two(n) || n > 32768)
    return fail(ErrorKind::kInvalid, "queue size " + std::to_string(n) + " is not a power of two");
  // Section 2.7: alignments 16, 2, 4; the last two bytes of both rings are the event indexes.
  const bool placed = is_aligned(layout.descriptors.value, 16) && memory_->resolve(layout.descriptors, kDescriptorBytes * n) &&
                      is_aligned(layout.available.value, 2) && memory_->resolve(layout.available, 6 + 2 * n) &&
                      is_aligned(layout.used.value, 4) && memory_->resolve(layout.used, 6 + 8 * n);
  if (!placed) return fail(ErrorKind::kInvalid, "a queue's rings are misaligned or outside of RAM");
  layout_ = layout;
  event_index_ = features & (1ull << VIRTIO_RING_F_EVENT_IDX);
  indirect_ = features & (1ull << VIRTIO_RING_F_INDIRECT_DESC);
  next_available_ = position.next_available;
  next_used_ = position.next_used;
  in_flight_ = position.in_flight;
  ready_ = true;
  return {};
}

void Queue::disable() {
  layout_ = {};
  ready_ = broken_ = signalled_valid_ = false;
  next_available_ = next_used_ = signalled_used_ = in_flight_ = 0;
}

void Queue::mark_broken() {
  if (broken_) return;
  broken_ = true;
  if (on_broken_) on_broken_();
}

Queue::Pop Queue::pop(DescriptorChain& chain) {
  if (broken_) return Pop::kBroken;
  if (!ready_) return Pop::kEmpty;
  const auto broken = [this] {
    mark_broken();
    return Pop::kBroken;
  };
  uint16_t available = 0;
  if (!load_available_index(available)) return broken();
  if (available == next_available_) {
    if (!event_index_) return Pop::kEmpty;
    // Ask for a kick, then look again: the driver may have added a chain before it saw the new event index.
    if (!memory_->store_release({layout_.used.value + 4 + 8ull * layout_.size}, next_available_)) return broken();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!load_available_index(available)) return broken();
    if (available == next_available_) return Pop::kEmpty;
  }
  if (static_cast<uint16_t>(available - next_available_) > layout_.size || in_flight_ >= layout_.size) return broken();
  uint16_t head = 0;
  const uint64_t slot = next_available_ % layout_.size;
  if (!memory_->read_object({layout_.available.value + 4 + 2 * slot}, head) || !walk(head, chain)) return broken();
  next_available_++;
  in_flight_++;
  return Pop::kChain;
}

void Queue::undo_pop() {
  if (!ready_ || in_flight_ == 0) return;
  next_available_--;
  in_flight_--;
}

std::optional<uint16_t> Queue::watch_available() {
  if (!ready_ || broken_) return std::nullopt;
  uint16_t now = 0;
  bool loaded = load_available_index(now);
  // Without event indexes the driver always kicks. A driver that adds without pause needs no waiting for: a few rounds are
  // enough.
  for (int rounds = 0; event_index_ && loaded && rounds < 4; rounds++) {
    const uint16_t before = now;
    loaded = memory_->store_release({layout_.used.value + 4 + 8ull * layout_.size}, now);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    loaded = loaded && load_available_index(now);
    if (before == now) break;
  }
  if (!loaded) {
    mark_broken();
    return std::nullopt;
  }
  return now;
}

bool Queue::reload(uint16_t head, DescriptorChain& chain) {
  if (ready_ && !broken_ && walk(head, chain)) return true;
  mark_broken();
  return false;
}

bool Queue::walk(uint16_t head, DescriptorChain& chain) const {
  chain.clear(head);
  uint64_t table = layout_.descriptors.value;
  uint32_t count = layout_.size;
  uint32_t left = count;  // a chain longer than its table is a loop
  uint32_t index = head;
  bool in_indirect = false;
  for (;;) {
    vring_desc d;
    if (index >= count || left-- == 0 || !memory_->read_object({table + kDescriptorBytes * index}, d)) return false;
    if (d.flags & VRING_DESC_F_INDIRECT) {
      if (!indirect_ || in_indirect || (d.flags & VRING_DESC_F_NEXT)) return false;
      if (d.len == 0 || d.len % kDescriptorBytes != 0 || d.len / kDescriptorBytes > kMaxIndirectDescriptors) return false;
      if (!memory_->resolve({d.addr}, d.len)) return false;
      table = d.addr;
      count = left = static_cast<uint32_t>(d.len / kDescriptorBytes);
      index = 0;
      in_indirect = true;
      continue;
    }
    if (d.len != 0) {
      if (!memory_->resolve({d.addr}, d.len)) return false;
      const bool writable = d.flags & VRING_DESC_F_WRITE;
      if (!writable && !chain.writable_.empty()) return false;
      (writable ? chain.writable_ : chain.readable_).push_back({{d.addr}, d.len});
      (writable ? chain.writable_bytes_ : chain.readable_bytes_) += d.len;
    }
    if (!(d.flags & VRING_DESC_F_NEXT)) break;
    index = d.next;
  }
  // Section 2.7.5: a chain holds at most 2^32 bytes.
  return chain.readable_bytes_ + chain.writable_bytes_ <= (1ull << 32);
}

void Queue::push_used(uint16_t head, uint32_t written) {
  if (!ready_ || in_flight_ == 0) return;
  const vring_used_elem element{.id = head, .len = written};
  const uint64_t slot = next_used_ % layout_.size;
  if (!memory_->write_object({layout_.used.value + 4 + 8 * slot}, element)) return mark_broken();
  next_used_++;
  in_flight_--;
  if (!memory_->store_release({layout_.used.value + 2}, next_used_)) mark_broken();
}

bool Queue::needs_interrupt() {
  if (!ready_ || broken_) return false;
  const uint16_t before = signalled_used_;
  const bool known = signalled_valid_;
  if (known && before == next_used_) return false;
  // The used index must be visible before the driver's wish is read, else both sides could wait for each other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  signalled_used_ = next_used_;
  signalled_valid_ = true;
  if (event_index_) {
    uint16_t event = 0;
    if (!memory_->load_acquire({layout_.available.value + 4 + 2ull * layout_.size}, event)) return true;
    return !known || vring_need_event(event, next_used_, before);
  }
  uint16_t flags = 0;
  if (!memory_->load_acquire(layout_.available, flags)) return true;
  return !(flags & VRING_AVAIL_F_NO_INTERRUPT);
}

}  // namespace ramet::vmm
