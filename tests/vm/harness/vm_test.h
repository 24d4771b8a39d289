// tests/vm/harness/vm_test.h - fixture of all VM tests: skips where no VM can run, and fails a test that leaks.
// Not here: the VM itself (vm.h). Thread: one.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "guests/lib/protocol.h"
#include "vm/harness/processes.h"
#include "vm/harness/vm.h"

namespace ramet::vmtest {

// The value, or a failed test with the error's sentence.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

inline Deadline within(std::chrono::nanoseconds time) { return deadline_after(time); }
inline constexpr std::chrono::seconds kSoon(10);

// Shadow memory and quarantine multiply what a fork copies and what a process keeps: sizes and times say nothing then.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

class VmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::optional<std::string> reason = cannot_run()) GTEST_SKIP() << *reason;
    descriptors_before_ = descriptors_of(getpid()).size();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_EQ(descriptors_of(getpid()).size(), descriptors_before_) << "the test leaks descriptors";
    EXPECT_EQ(surviving_children(within(std::chrono::seconds(2))), "") << "the test leaves processes";
  }

  // A booted tiny guest that has said kReady.
  static std::unique_ptr<Vm> boot(const std::string& guest, BootOptions options = {}) {
    options.kernel = guest_path(guest);
    std::unique_ptr<Vm> vm = must(Vm::boot(options));
    must(vm->wait_for_kind(guests::kReady, within(kSoon)));
    return vm;
  }
  // The zygote of a tiny guest.
  static std::unique_ptr<Vm> zygote_of(const std::string& guest, BootOptions options = {}) {
    std::unique_ptr<Vm> builder = boot(guest, std::move(options));
    return must(Vm::zygote(must(builder->capture())));
  }

 private:
  size_t descriptors_before_ = 0;
};

}  // namespace ramet::vmtest
