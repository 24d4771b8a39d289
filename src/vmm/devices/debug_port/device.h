// vmm/devices/debug_port/device.h - port 0x5f0: 32-bit words between a tiny guest and its test. Only there when Bootstrap asks.
// Not here: what the words mean (tests/guests/lib/protocol.h), the control connection that carries them.
//
// `out` reports a word. `in` takes the next pushed word and waits for it, so that an idle guest costs no processor time; the
// wait ends with 0 when the machine is parked (fork, pause). The guest then sees that 0 first thing after it runs again, in
// every branch.
//
// Thread: bus_read and bus_write from vCPU threads, push and interrupt from the event loop. Owner: the machine.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>

#include "base/result.h"
#include "vmm/bus.h"

namespace ramet::vmm {

class DebugPort final : public BusDevice {
 public:
  using Report = std::function<void(uint32_t word)>;
  explicit DebugPort(Report report) : report_(std::move(report)) {}

  static constexpr size_t kMaxWaitingWords = 1 << 16;
  // Errors: kNoSpace (the guest has not taken that many yet).
  Status push(std::span<const uint32_t> words);
  // After the request to park is set, before it is waited for: a waiting `in` returns 0, and until resume() every `in` does.
  void interrupt();
  void resume();
  // First thing in a forked child. Words not yet taken stay, as RAM does. Requires: the machine stood still, so that no vCPU
  // thread was in here: the lock is free and nobody waits.
  void after_fork();

  void bus_read(uint64_t offset, std::span<std::byte> data) override;
  void bus_write(uint64_t offset, std::span<const std::byte> data) override;

 private:
  uint32_t take();

  const Report report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<uint32_t> words_;  // guarded by mutex_, as is:
  bool interrupted_ = false;
  bool zero_read_ = false;  // the guest's last access read 0: it knows
  bool zero_owed_ = false;  // it was parked elsewhere and does not know yet
};

}  // namespace ramet::vmm
