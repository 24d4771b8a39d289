// bench_block - the block path against the bare system calls: requests through transport, queue, device and overlay stack of a
// disk with a base, measured in turns with pread/pwrite of the same file. Everything is in the page cache, except where a row
// says flush.
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>
#include <thread>

#include "base/file.h"
#include "image/raw_source.h"
#include "report.h"
#include "vmm/devices/block/disk.h"
#include "vmm/devices/driver_fake.h"

namespace {

using namespace ramet;
using namespace ramet::vmm;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kDiskBytes = 512ull << 20;
constexpr unsigned kBatch = 64;  // requests per kick, as a busy guest makes them
constexpr unsigned kBatchesPerSample = 40;
constexpr int kSamples = 60;

// What this thread used: on a shared computer wall time measures the neighbours.
Nanoseconds thread_time() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + Nanoseconds(t.tv_nsec);
}

double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

template <class T>
T must(Result<T> r) {
  if (r) return std::move(*r);
  std::cerr << "bench_block: " << r.error().to_string() << "\n";
  std::exit(1);
}

// A guest driver with nothing in the way: all descriptors are written once, a batch changes sectors and one index.
class LeanDriver {
 public:
  static constexpr uint16_t kRing = 256;
  explicit LeanDriver(BlockDevice& device)
      : ram_(64 << 20), memory_(ram_.data(), ram_.size()), transport_(memory_, device, [] {}) {
    write(VIRTIO_MMIO_STATUS, 3);
    write(VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
    write(VIRTIO_MMIO_DRIVER_FEATURES, 1);  // VERSION_1
    write(VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    write(VIRTIO_MMIO_DRIVER_FEATURES, 1u << VIRTIO_BLK_F_FLUSH);
    write(VIRTIO_MMIO_STATUS, 11);
    write(VIRTIO_MMIO_QUEUE_NUM, kRing);
    write(VIRTIO_MMIO_QUEUE_DESC_LOW, kDescriptors);
    write(VIRTIO_MMIO_QUEUE_AVAIL_LOW, kAvailable);
    write(VIRTIO_MMIO_QUEUE_USED_LOW, kUsed);
    write(VIRTIO_MMIO_QUEUE_READY, 1);
    write(VIRTIO_MMIO_STATUS, 15);
    at<uint16_t>(kAvailable) = VRING_AVAIL_F_NO_INTERRUPT;
    for (uint16_t i = 0; i < kBatch; i++) at<uint16_t>(kAvailable + 4 + 2ull * i) = static_cast<uint16_t>(3 * i);
  }
  MmioTransport& transport() { return transport_; }

  void prepare(uint32_t type, uint32_t bytes) {
    for (uint16_t i = 0; i < kBatch; i++) {
      const uint16_t head = static_cast<uint16_t>(3 * i);
      at<uint32_t>(header(i)) = type;
      const uint16_t data_flags = static_cast<uint16_t>(VRING_DESC_F_NEXT | (type == VIRTIO_BLK_T_IN ? VRING_DESC_F_WRITE : 0));
      descriptor(head) = {header(i), 16, VRING_DESC_F_NEXT, static_cast<uint16_t>(head + (bytes ? 1 : 2))};
      descriptor(head + 1) = {data(i), bytes, data_flags, static_cast<uint16_t>(head + 2)};
      descriptor(head + 2) = {kStatus + i, 1, VRING_DESC_F_WRITE, 0};
    }
  }
  std::byte* buffer(uint16_t i) { return ram_.data() + data(i); }
  // Sends n requests with one kick and waits until all are answered.
  void run(const uint64_t* blocks, unsigned n = kBatch) {
    for (uint16_t i = 0; i < n; i++) at<uint64_t>(header(i) + 8) = blocks[i] * 8;
    std::memset(ram_.data() + kStatus, 0xee, n);
    // Heads 0, 3, ... lie in the ring's first entries; the index is moved so that they are the next ones.
    for (unsigned i = 0; i < n; i++)
      at<uint16_t>(kAvailable + 4 + 2ull * ((available_ + i) % kRing)) = static_cast<uint16_t>(3 * i);
    available_ = static_cast<uint16_t>(available_ + n);
    if (!memory_.store_release({kAvailable + 2}, available_)) std::abort();
    write(VIRTIO_MMIO_QUEUE_NOTIFY, 0);
    for (uint16_t used = 0;;) {
      if (!memory_.load_acquire({kUsed + 2}, used)) std::abort();
      if (used == available_) break;
      std::this_thread::yield();
    }
    for (unsigned i = 0; i < n; i++)
      if (at<uint8_t>(kStatus + i) != VIRTIO_BLK_S_OK) std::abort();
  }

 private:
  static constexpr uint64_t kDescriptors = 0x1000, kAvailable = 0x3000, kUsed = 0x4000, kHeaders = 0x6000, kStatus = 0x8000;
  static uint64_t header(uint16_t i) { return kHeaders + 16ull * i; }
  static uint64_t data(uint16_t i) { return 0x100000 + (256ull << 10) * i; }
  vring_desc& descriptor(unsigned i) { return at<vring_desc>(kDescriptors + 16ull * i); }
  template <class T>
  T& at(uint64_t a) {
    return *reinterpret_cast<T*>(ram_.data() + a);
  }
  void write(uint64_t offset, uint32_t value) { transport_.bus_write(offset, std::as_bytes(std::span(&value, 1))); }

  std::vector<std::byte> ram_;
  GuestMemory memory_;
  MmioTransport transport_;
  uint16_t available_ = 0;
};

struct Files {
  std::filesystem::path folder;
  explicit Files(const std::string& where) {
    std::string pattern = where + "/ramet-bench-XXXXXX";
    folder = ::mkdtemp(pattern.data());
  }
  ~Files() { std::filesystem::remove_all(folder); }
  UniqueFd open(const std::string& name, int flags) { return must(open_file(folder / name, flags, 0600)); }
  OverlayDescriptors overlay(const std::string& id) {
    OverlayDescriptors o;
    o.id = id;
    o.data_rw = open(id + ".data", O_RDWR | O_CREAT);
    o.log_rw = open(id + ".log", O_RDWR | O_CREAT);
    o.data_ro = open(id + ".data", O_RDONLY);
    o.log_ro = open(id + ".log", O_RDONLY);
    return o;
  }
};

struct Bench {
  explicit Bench(const std::string& where) : files(where) {
    UniqueFd raw = files.open("base.img", O_RDWR | O_CREAT);
    std::vector<std::byte> mib(1 << 20, std::byte{0x5a});
    for (uint64_t at = 0; at < kDiskBytes; at += mib.size())
      if (!pwrite_all(raw.get(), mib, at)) std::abort();
    (void)::fsync(raw.get());
    raw_ = std::move(raw);
    disk = must(Disk::open(
        {.id = "bench", .base = files.open("base.img", O_RDONLY), .size_bytes = kDiskBytes, .writable = files.overlay("w")}));
    driver = std::make_unique<LeanDriver>(disk->device());
  }

  // Random block numbers of one batch, aligned to the transfer.
  const uint64_t* next_blocks(uint64_t blocks_each) {
    for (uint64_t& b : blocks_) b = (rng_() % (kDiskBytes / 4096 / blocks_each)) * blocks_each;
    return blocks_;
  }

  bench::Row compare(const std::string& name, uint32_t type, uint32_t bytes) {
    bench::Row row{name, "us", {}, {}, ""};
    driver->prepare(type, bytes);
    const bool inline_only = type == VIRTIO_BLK_T_IN || bytes <= (64 << 10);
    const uint64_t each = bytes / 4096;
    for (int s = 0; s < kSamples; s++) {
      Nanoseconds ours{}, bare{};
      const auto now = [inline_only] { return inline_only ? thread_time() : Nanoseconds(monotonic_ns()); };
      for (unsigned b = 0; b < kBatchesPerSample; b++) {
        const uint64_t* blocks = next_blocks(each);
        const Nanoseconds t0 = now();
        if (b % 2 == 0)
          driver->run(blocks);
        else
          bare_system_calls(type, bytes, blocks);
        const Nanoseconds t1 = now();
        if (b % 2 == 0)
          bare_system_calls(type, bytes, blocks);
        else
          driver->run(blocks);
        const Nanoseconds t2 = now();
        ours += b % 2 == 0 ? t1 - t0 : t2 - t1;
        bare += b % 2 == 0 ? t2 - t1 : t1 - t0;
      }
      row.measured.add(microseconds(ours) / (kBatch * kBatchesPerSample));
      row.floor.add(microseconds(bare) / (kBatch * kBatchesPerSample));
    }
    return row;
  }

  // Into as many buffers as the driver has, so that both meet equally warm memory.
  void bare_system_calls(uint32_t type, uint32_t bytes, const uint64_t* blocks) {
    for (unsigned i = 0; i < kBatch; i++) {
      const off_t offset = static_cast<off_t>(blocks[i] * 4096);
      std::byte* p = bare_buffers_.data() + (256ull << 10) * i;
      const ssize_t n =
          type == VIRTIO_BLK_T_IN ? ::pread(raw_.get(), p, bytes, offset) : ::pwrite(raw_.get(), p, bytes, offset);
      if (n != static_cast<ssize_t>(bytes)) std::abort();
    }
  }

  // One request per kick that a worker must do: what the hand-over costs.
  bench::Row hand_over() {
    bench::Row row{"one 4 KiB zero by a worker, queue depth 1", "us", {}, {}, ""};
    driver->prepare(VIRTIO_BLK_T_WRITE_ZEROES, 16);
    for (int i = 0; i < 2000; i++) {
      uint64_t segment[2] = {static_cast<uint64_t>(i % 100) * 8, 8};
      std::memcpy(driver->buffer(0), segment, sizeof segment);
      const uint64_t none = 0;
      const Clock::time_point t0 = Clock::now();
      driver->run(&none, 1);
      row.measured.add(microseconds(Clock::now() - t0));
    }
    return row;
  }

  bench::Row flush_after(uint64_t mib) {
    bench::Row row{"flush after " + std::to_string(mib) + " MiB of 64 KiB writes", "ms", {}, {}, ""};
    for (int s = 0; s < 12; s++) {
      driver->prepare(VIRTIO_BLK_T_OUT, 64 << 10);
      for (uint64_t left = mib * 16; left > 0;) {
        const unsigned n = static_cast<unsigned>(std::min<uint64_t>(left, kBatch));
        driver->run(next_blocks(16), n);
        left -= n;
      }
      driver->prepare(VIRTIO_BLK_T_FLUSH, 0);
      const uint64_t none = 0;
      const Clock::time_point t0 = Clock::now();
      driver->run(&none, 1);
      row.measured.add(microseconds(Clock::now() - t0) / 1000);
    }
    return row;
  }

  bench::Row freeze() {
    bench::Row row{"freeze and swap overlays, 1 MiB unflushed", "us", {}, {}, ""};
    for (int s = 0; s < 100; s++) {
      driver->prepare(VIRTIO_BLK_T_OUT, 4096);
      for (int i = 0; i < 4; i++) driver->run(next_blocks(1));
      OverlayDescriptors next = files.overlay("f" + std::to_string(s));
      const Clock::time_point t0 = Clock::now();
      if (!driver->transport().quiesce(deadline_after(std::chrono::seconds(5)))) std::abort();
      if (!must(disk->freeze()) || !disk->start_overlay(std::move(next))) std::abort();
      driver->transport().resume();
      row.measured.add(microseconds(Clock::now() - t0));
    }
    return row;
  }

  Files files;
  UniqueFd raw_;
  std::vector<std::byte> bare_buffers_ = std::vector<std::byte>((256ull << 10) * kBatch);
  std::unique_ptr<Disk> disk;
  std::unique_ptr<LeanDriver> driver;
  std::mt19937_64 rng_{1};
  uint64_t blocks_[kBatch] = {};
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The block path against bare system calls.");
  std::string json, where = std::filesystem::temp_directory_path();
  app.add_option("--json", json, "write rows to this file");
  app.add_option("--dir", where, "folder for the files (512 MiB and more)");
  bool reads_only = false;
  app.add_flag("--reads-only", reads_only, "the first case again and again");
  CLI11_PARSE(app, argc, argv);
  bench::Report report("block", json);
  Bench b(where);
  if (reads_only) {  // for a profiler
    for (int i = 0; i < 20; i++) report.add(b.compare("4 KiB random read of the base (floor: pread)", VIRTIO_BLK_T_IN, 4096));
    return report.finish();
  }
  report.add(b.compare("4 KiB random read of the base (floor: pread)", VIRTIO_BLK_T_IN, 4096));
  report.add(b.compare("64 KiB random read of the base (floor: pread)", VIRTIO_BLK_T_IN, 64 << 10));
  report.add(b.compare("4 KiB random write (floor: pwrite)", VIRTIO_BLK_T_OUT, 4096));
  report.add(b.compare("64 KiB random write, inline (floor: pwrite)", VIRTIO_BLK_T_OUT, 64 << 10));
  report.add(b.compare("128 KiB random write, by workers (floor: pwrite)", VIRTIO_BLK_T_OUT, 128 << 10));
  report.add(b.compare("4 KiB random read of base and overlay (floor: pread)", VIRTIO_BLK_T_IN, 4096));
  report.add(b.hand_over());
  report.add(b.flush_after(1));
  report.add(b.flush_after(32));
  report.add(b.freeze());
  return report.finish();
}
