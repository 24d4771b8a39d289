#include "vmm/virtio/mmio.h"

#include <linux/virtio_mmio.h>

#include <algorithm>

#include "base/log.h"
#include "vmm/virtio/virtio_state.pb.h"

namespace ramet::vmm {
namespace {

constexpr uint32_t kMagic = 0x74726976;   // "virt"
constexpr uint32_t kVendor = 0x454d4152;  // "RAME"
constexpr uint64_t kTransportFeatures =
    (1ull << VIRTIO_F_VERSION_1) | (1ull << VIRTIO_RING_F_INDIRECT_DESC) | (1ull << VIRTIO_RING_F_EVENT_IDX);
constexpr uint32_t kStateVersion = 1;
constexpr uint32_t kDriverStatusBits = VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_DRIVER_OK |
                                       VIRTIO_CONFIG_S_FEATURES_OK | VIRTIO_CONFIG_S_FAILED;

void set_low(uint64_t& field, uint32_t value) { field = (field & ~0xffffffffull) | value; }
void set_high(uint64_t& field, uint32_t value) { field = (field & 0xffffffffull) | (static_cast<uint64_t>(value) << 32); }

}  // namespace

MmioTransport::MmioTransport(const GuestMemory& memory, VirtioDevice& device, std::function<void()> interrupt)
    : memory_(memory), device_(device), interrupt_(std::move(interrupt)), max_sizes_(device.queue_sizes()) {
  pending_.resize(max_sizes_.size());
  queues_.reserve(max_sizes_.size());
  for (size_t i = 0; i < max_sizes_.size(); i++)
    queues_.emplace_back(memory_, [this] { raise(VIRTIO_MMIO_INT_CONFIG); });  // the driver then finds NEEDS_RESET
  device_.attach(mutex_);
}

MmioTransport::~MmioTransport() { device_.detach(); }

uint64_t MmioTransport::offered() const { return device_.offered_features() | kTransportFeatures; }

void MmioTransport::raise(uint32_t bit) {
  if (!active_) return;
  interrupt_status_ |= bit;
  if (bit == VIRTIO_MMIO_INT_CONFIG) config_generation_++;
  interrupt_();
}

void MmioTransport::bus_read(uint64_t offset, std::span<std::byte> data) {
  std::fill(data.begin(), data.end(), std::byte{0});
  const std::lock_guard lock(mutex_);
  if (offset >= VIRTIO_MMIO_CONFIG) {
    device_.read_config(offset - VIRTIO_MMIO_CONFIG, data);
    return;
  }
  if (data.size() != 4 || offset % 4 != 0) return;  // section 4.2.2.2: only aligned 32-bit accesses
  const uint32_t value = read_register(offset);
  std::memcpy(data.data(), &value, sizeof value);
}

void MmioTransport::bus_write(uint64_t offset, std::span<const std::byte> data) {
  const std::lock_guard lock(mutex_);
  if (offset >= VIRTIO_MMIO_CONFIG) {
    device_.write_config(offset - VIRTIO_MMIO_CONFIG, data);
    return;
  }
  if (data.size() != 4 || offset % 4 != 0) return;
  uint32_t value = 0;
  std::memcpy(&value, data.data(), sizeof value);
  write_register(offset, value);
}

uint32_t MmioTransport::read_register(uint64_t offset) const {
  switch (offset) {
    case VIRTIO_MMIO_MAGIC_VALUE: return kMagic;
    case VIRTIO_MMIO_VERSION: return 2;
    case VIRTIO_MMIO_DEVICE_ID: return device_.device_id();
    case VIRTIO_MMIO_VENDOR_ID: return kVendor;
    case VIRTIO_MMIO_DEVICE_FEATURES:
      return device_features_select_ < 2 ? static_cast<uint32_t>(offered() >> (32 * device_features_select_)) : 0;
    case VIRTIO_MMIO_QUEUE_NUM_MAX: return selected() ? max_sizes_[queue_select_] : 0;
    case VIRTIO_MMIO_QUEUE_READY: return selected() && queues_[queue_select_].ready();
    case VIRTIO_MMIO_INTERRUPT_STATUS: return interrupt_status_;
    case VIRTIO_MMIO_STATUS: {
      const bool broken = std::any_of(queues_.begin(), queues_.end(), [](const Queue& q) { return q.broken(); });
      return status_ | (broken ? VIRTIO_CONFIG_S_NEEDS_RESET : 0);
    }
    // No shared memory region: a length of all ones (section 4.2.2).
    case VIRTIO_MMIO_SHM_LEN_LOW:
    case VIRTIO_MMIO_SHM_LEN_HIGH:
    case VIRTIO_MMIO_SHM_BASE_LOW:
    case VIRTIO_MMIO_SHM_BASE_HIGH: return 0xffffffff;
    case VIRTIO_MMIO_CONFIG_GENERATION: return config_generation_;
    default: return 0;
  }
}

void MmioTransport::write_register(uint64_t offset, uint32_t value) {
  switch (offset) {
    case VIRTIO_MMIO_DEVICE_FEATURES_SEL: device_features_select_ = value; break;
    case VIRTIO_MMIO_DRIVER_FEATURES_SEL: driver_features_select_ = value; break;
    case VIRTIO_MMIO_DRIVER_FEATURES: write_driver_features(value); break;
    case VIRTIO_MMIO_QUEUE_SEL: queue_select_ = value; break;
    case VIRTIO_MMIO_QUEUE_NOTIFY:
      if (active_ && !quiesced_ && value < queues_.size()) device_.queue_notify(static_cast<uint16_t>(value));
      break;
    case VIRTIO_MMIO_INTERRUPT_ACK: interrupt_status_ &= ~value; break;
    case VIRTIO_MMIO_STATUS: write_status(value); break;
    case VIRTIO_MMIO_QUEUE_READY: write_queue_ready(value); break;
    default: write_queue_register(offset, value); break;
  }
}

void MmioTransport::write_driver_features(uint32_t value) {
  if (status_ & VIRTIO_CONFIG_S_FEATURES_OK) return;
  if (driver_features_select_ == 0) set_low(driver_features_, value);
  if (driver_features_select_ == 1) set_high(driver_features_, value);
}

void MmioTransport::write_queue_register(uint64_t offset, uint32_t value) {
  if (active_ || !selected() || queues_[queue_select_].ready()) return;
  PendingLayout& p = pending_[queue_select_];
  switch (offset) {
    case VIRTIO_MMIO_QUEUE_NUM: p.size = static_cast<uint16_t>(std::min<uint32_t>(value, 0xffff)); break;
    case VIRTIO_MMIO_QUEUE_DESC_LOW: set_low(p.descriptors, value); break;
    case VIRTIO_MMIO_QUEUE_DESC_HIGH: set_high(p.descriptors, value); break;
    case VIRTIO_MMIO_QUEUE_AVAIL_LOW: set_low(p.available, value); break;
    case VIRTIO_MMIO_QUEUE_AVAIL_HIGH: set_high(p.available, value); break;
    case VIRTIO_MMIO_QUEUE_USED_LOW: set_low(p.used, value); break;
    case VIRTIO_MMIO_QUEUE_USED_HIGH: set_high(p.used, value); break;
    default: break;
  }
}

void MmioTransport::write_queue_ready(uint32_t value) {
  if (!selected()) return;
  Queue& queue = queues_[queue_select_];
  if (active_) {
    if (value == 0 && queue.ready()) queue.mark_broken();  // section 4.2.2.2: only a reset may take a live queue away
    return;
  }
  if (value == 0) {
    queue.disable();
    return;
  }
  if (queue.ready()) return;
  const PendingLayout& p = pending_[queue_select_];
  Status enabled = p.size <= max_sizes_[queue_select_]
                       ? queue.enable({p.size, {p.descriptors}, {p.available}, {p.used}}, driver_features_, {})
                       : fail(ErrorKind::kInvalid, "queue size is over the maximum");
  if (!enabled) queue.mark_broken();
}

void MmioTransport::write_status(uint32_t value) {
  if (value == 0) {
    reset_device();
    return;
  }
  uint32_t added = value & kDriverStatusBits & ~status_;
  if (added & VIRTIO_CONFIG_S_FEATURES_OK) {
    const bool acceptable = (driver_features_ & ~offered()) == 0 && (driver_features_ & (1ull << VIRTIO_F_VERSION_1));
    if (!acceptable) added &= ~VIRTIO_CONFIG_S_FEATURES_OK;
  }
  // A driver that skips negotiation gets no running device.
  if ((added & VIRTIO_CONFIG_S_DRIVER_OK) && !((status_ | added) & VIRTIO_CONFIG_S_FEATURES_OK))
    added &= ~VIRTIO_CONFIG_S_DRIVER_OK;
  status_ |= added;
  if (added & VIRTIO_CONFIG_S_DRIVER_OK) activate_device();
}

void MmioTransport::activate_device() {
  active_ = true;
  device_.activate({
      .memory = &memory_,
      .queues = queues_,
      .features = driver_features_,
      .raise_used = [this] { raise(VIRTIO_MMIO_INT_VRING); },
      .raise_config = [this] { raise(VIRTIO_MMIO_INT_CONFIG); },
  });
}

void MmioTransport::reset_device() {
  if (active_) device_.reset();
  active_ = false;
  for (Queue& q : queues_) q.disable();
  std::fill(pending_.begin(), pending_.end(), PendingLayout{});
  status_ = interrupt_status_ = 0;
  driver_features_ = 0;
  device_features_select_ = driver_features_select_ = queue_select_ = 0;
}

Status MmioTransport::quiesce(Deadline deadline) {
  const std::lock_guard lock(mutex_);
  quiesced_ = true;
  return device_.quiesce(deadline);  // also when inactive: work from before a reset may still go on
}

void MmioTransport::resume() {
  const std::lock_guard lock(mutex_);
  quiesced_ = false;
  device_.resume();
  if (!active_) return;
  for (size_t i = 0; i < queues_.size(); i++)
    if (queues_[i].ready()) device_.queue_notify(static_cast<uint16_t>(i));
  if (interrupt_status_ != 0) interrupt_();
}

void MmioTransport::after_fork() {
  // Safety: single-threaded here; whoever held the old mutex does not exist in this process.
  std::construct_at(&mutex_);
  const std::lock_guard lock(mutex_);
  device_.after_fork();
}

std::string MmioTransport::save() const {
  const std::lock_guard lock(mutex_);
  VirtioTransportState s;
  s.set_version(kStateVersion);
  s.set_device_id(device_.device_id());
  s.set_status(status_);
  s.set_interrupt_status(interrupt_status_);
  s.set_driver_features(driver_features_);
  s.set_device_features_select(device_features_select_);
  s.set_driver_features_select(driver_features_select_);
  s.set_queue_select(queue_select_);
  s.set_config_generation(config_generation_);
  for (const Queue& q : queues_) {
    VirtioQueueState& out = *s.add_queues();
    const QueuePosition position = q.position();
    out.set_ready(q.ready());
    out.set_broken(q.broken());
    out.set_size(q.layout().size);
    out.set_descriptors(q.layout().descriptors.value);
    out.set_available(q.layout().available.value);
    out.set_used(q.layout().used.value);
    out.set_next_available(position.next_available);
    out.set_next_used(position.next_used);
    out.set_in_flight(position.in_flight);
  }
  s.set_device(device_.save());
  return s.SerializeAsString();
}

Status MmioTransport::restore_queue(size_t index, const VirtioQueueState& in) {
  if (in.ready()) {
    if (in.size() > max_sizes_[index] || in.next_available() > 0xffff || in.next_used() > 0xffff || in.in_flight() > in.size())
      return fail(ErrorKind::kCorrupt, "virtio queue state is out of range");
    const QueueLayout layout{static_cast<uint16_t>(in.size()), {in.descriptors()}, {in.available()}, {in.used()}};
    const QueuePosition position{static_cast<uint16_t>(in.next_available()), static_cast<uint16_t>(in.next_used()),
                                 static_cast<uint16_t>(in.in_flight())};
    if (Status s = queues_[index].enable(layout, driver_features_, position); !s)
      return fail(ErrorKind::kCorrupt, "virtio queue state: " + s.error().message());
  }
  if (in.broken()) queues_[index].mark_broken();
  return {};
}

Status MmioTransport::restore(std::string_view state) {
  VirtioTransportState s;
  if (!s.ParseFromArray(state.data(), static_cast<int>(state.size())))
    return fail(ErrorKind::kCorrupt, "virtio state cannot be parsed");
  const std::lock_guard lock(mutex_);
  if (s.version() != kStateVersion || s.device_id() != device_.device_id() ||
      static_cast<size_t>(s.queues_size()) != queues_.size())
    return fail(ErrorKind::kCorrupt, "virtio state is of another version or device");
  if (s.driver_features() & ~offered())
    return fail(ErrorKind::kCorrupt, "virtio state has features this device does not offer");
  status_ = s.status() & kDriverStatusBits;
  interrupt_status_ = s.interrupt_status();
  driver_features_ = s.driver_features();
  device_features_select_ = s.device_features_select();
  driver_features_select_ = s.driver_features_select();
  queue_select_ = s.queue_select();
  config_generation_ = s.config_generation();
  for (size_t i = 0; i < queues_.size(); i++) TRY(restore_queue(i, s.queues(static_cast<int>(i))));
  TRY(device_.restore(s.device()));
  quiesced_ = true;  // until resume()
  if (status_ & VIRTIO_CONFIG_S_DRIVER_OK) activate_device();
  return {};
}

}  // namespace ramet::vmm
