// ramet-vmm: one microVM. Started by rametd with a bootstrap socket; opens nothing by path afterwards.
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>

#include "base/log.h"
#include "kvm/probe.h"
#include "vmm/memory/program_text.h"
#include "vmm/monitor.h"

namespace {

using namespace ramet;

// Guest RAM chooses its page sizes itself; with huge pages everywhere the monitor's own small heap would take 2 MiB steps.
// Kernels before 6.18 cannot make that difference: there the administrator's `madvise` setting does.
void keep_own_memory_small() {
  constexpr unsigned long kThpDisableExceptAdvised = 1ul << 1;  // PR_THP_DISABLE_EXCEPT_ADVISED
  static_cast<void>(::prctl(PR_SET_THP_DISABLE, 1ul, kThpDisableExceptAdvised, 0ul, 0ul));
  ::mallopt(M_ARENA_MAX, 1);  // an arena per thread is a mapping per thread, which every fork(2) would copy
}

// A chunked base may have 256 descriptors, its overlays twice 250. (One too many is an error of whoever wanted it.)
void allow_many_descriptors() {
  constexpr rlim_t kDescriptors = 4096;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptors) return;
  limit.rlim_cur = std::min(limit.rlim_max, kDescriptors);
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

std::string json_string(const std::string& s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

int probe_kvm(const std::string& device, bool json) {
  const kvm::ProbeReport report = kvm::probe(device);
  if (json)
    std::printf("{\"usable\":%s,\"reason\":%s,\"loop_ns\":%.3f,\"device_opens\":%s}\n", report.usable ? "true" : "false",
                json_string(report.reason).c_str(), report.loop_ns, report.device_opens ? "true" : "false");
  else
    std::printf("%s: %s\n", report.usable ? "usable" : "not usable", report.reason.c_str());
  return report.usable ? 0 : 1;
}

int run_monitor(int bootstrap_fd) {
  vmm::move_program_text_to_huge_pages();
  keep_own_memory_small();
  allow_many_descriptors();
  vmm::ignore_child_exits();
  // What leaked into us from whoever started us must not live on in generations of sandboxes.
  const Status closed = vmm::close_all_but({0, 1, 2, bootstrap_fd});
  if (!closed) log_warn(closed.error().to_string());
  Result<std::unique_ptr<vmm::EventLoop>> loop = vmm::EventLoop::create();
  if (!loop) {
    log_error(loop.error().to_string());
    return 1;
  }
  vmm::Monitor monitor(*std::move(loop));
  const Status started = monitor.start(UniqueFd(bootstrap_fd));
  if (!started) {
    log_error(started.error().to_string());
    return 1;
  }
  const int code = monitor.run();
  ::_exit(code);  // threads may be inside KVM_RUN or a read: the process ends them, there is nothing left to write
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One Ramet microVM. rametd starts it; by hand only --probe-kvm is useful.", "ramet-vmm");
  int bootstrap_fd = -1;
  bool probe = false, json = false;
  std::string device = "/dev/kvm";
  app.set_version_flag("--version", "ramet-vmm " RAMET_VERSION);
  CLI::Option* const bootstrap_option =
      app.add_option("--bootstrap-fd", bootstrap_fd, "descriptor of the bootstrap socket")->check(CLI::NonNegativeNumber);
  CLI::Option* const probe_option =
      app.add_flag("--probe-kvm", probe, "say whether this machine's KVM can run a normal kernel");
  app.add_flag("--json", json, "with --probe-kvm: one JSON object")->needs(probe_option);
  app.add_option("--device", device, "with --probe-kvm: the device")->needs(probe_option);
  probe_option->excludes(bootstrap_option);
  CLI11_PARSE(app, argc, argv);

  log_init("ramet-vmm", "", LogLevel::kInfo);
  if (probe) return probe_kvm(device, json);
  if (bootstrap_fd >= 0) return run_monitor(bootstrap_fd);
  std::fputs("ramet-vmm: nothing to do; see --help\n", stderr);
  return 2;
}
