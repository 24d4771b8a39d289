#include "fork/busy.h"

#include "guests/lib/protocol.h"
#include "vm/harness/vm.h"

namespace ramet::bench {

using vmtest::Vm;

Status run_busy(Report& report, int n) {
  constexpr std::chrono::seconds kPatience(30);
  vmtest::BootOptions options;
  options.kernel = vmtest::guest_path("hog");
  options.memory_mib = 256;
  TRY_ASSIGN(std::unique_ptr<Vm> vm, Vm::boot(options));
  TRY(vm->wait_for_kind(guests::kTick, deadline_after(kPatience)));
  Series kick, stop;
  for (int i = 0; i < n; i++) {
    std::vector<vmtest::PreparedChild> prepared;
    TRY_ASSIGN(vmtest::PreparedChild child, vm->prepare_child());
    prepared.push_back(std::move(child));
    TRY_ASSIGN(vmtest::ForkOutcome outcome, vm->fork(std::move(prepared)));
    if (!outcome.failures.empty()) return tl::unexpected<Error>(outcome.failures.front());
    kick.add(static_cast<double>(outcome.timing.stopped_at_ns() - outcome.timing.requested_at_ns()) / 1e6);
    stop.add(static_cast<double>(outcome.timing.resumed_at_ns() - outcome.timing.stopped_at_ns()) / 1e6);
  }
  report.add({"busy guest, request to standstill", "ms", kick, {}, ""});
  report.add({"busy guest, vcpu stop", "ms", stop, {}, ""});
  return {};
}

}  // namespace ramet::bench
