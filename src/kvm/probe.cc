#include "kvm/probe.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/socket.h"
#include "kvm/kvm.h"

namespace ramet::kvm {
namespace {

constexpr uint64_t kRamBytes = 2u << 20;
constexpr uint64_t kGdt = 0x500, kPml4 = 0x1000, kPdpt = 0x2000, kPd = 0x3000, kCode = 0x8000, kStack = 0x7ff0;
constexpr uint32_t kIterations = 50'000;
// Hardware, also nested, stays below 10. An emulated processor with SVM takes 20 to 240 (mostly the fixed cost of the few
// entries, on a busy computer), a KVM that interprets instructions 1,000 to 2,000.
constexpr double kUsableLoopNs = 400;

// mov ecx, kIterations; 1: dec ecx; jnz 1b; mov dx, 0x5f0; out dx, al; 2: jmp 2b
constexpr unsigned char kLoop[] = {0xb9,
                                   kIterations & 0xff,
                                   kIterations >> 8 & 0xff,
                                   kIterations >> 16 & 0xff,
                                   0x00,
                                   0xff,
                                   0xc9,
                                   0x75,
                                   0xfc,
                                   0x66,
                                   0xba,
                                   0xf0,
                                   0x05,
                                   0xee,
                                   0xeb,
                                   0xfe};

// Identity map of 2 MiB and a flat GDT.
void prepare(std::byte* ram) {
  const auto put = [ram](uint64_t at, uint64_t value) { std::memcpy(ram + at, &value, sizeof value); };
  put(kPml4, kPdpt | 3);
  put(kPdpt, kPd | 3);
  put(kPd, 0x83);
  put(kGdt + 0x10, 0x00af9b000000ffff);
  put(kGdt + 0x18, 0x00cf93000000ffff);
  std::memcpy(ram + kCode, kLoop, sizeof kLoop);
}

Result<double> time_loop(const std::string& device) {
  TRY_ASSIGN(UniqueFd fd, open_file(device, O_RDWR));
  TRY_ASSIGN(const System system, System::open(std::move(fd)));
  TRY_ASSIGN(MappedRegion ram, MappedRegion::map(kRamBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
  double best_ns = 0;
  for (int round = 0; round < 5; round++) {
    prepare(ram.data());
    TRY_ASSIGN(Vm vm, system.create_vm());
    TRY(vm.add_memory(0, 0, kRamBytes, ram.data()));
    TRY(vm.enable_split_irqchip());
    TRY_ASSIGN(Vcpu vcpu, vm.create_vcpu(0));
    TRY(vcpu.set_cpuid(system, 1));
    TRY(vcpu.set_boot_registers({.rip = kCode,
                                 .rsp = kStack,
                                 .cr3 = kPml4,
                                 .gdt_base = kGdt,
                                 .gdt_limit = 31,
                                 .code_selector = 0x10,
                                 .data_selector = 0x18}));
    const int64_t begin = monotonic_ns();
    for (;;) {
      TRY_ASSIGN(const Exit e, vcpu.run());
      if (e.kind == Exit::Kind::kInterrupted) continue;
      if (e.kind == Exit::Kind::kIo) break;
      return fail(ErrorKind::kUnsupported, "the test guest ended with exit kind " + std::to_string(static_cast<int>(e.kind)) +
                                               ", detail " + std::to_string(e.detail));
    }
    const double ns = static_cast<double>(monotonic_ns() - begin) / kIterations;
    best_ns = round == 0 ? ns : std::min(best_ns, ns);
  }
  return best_ns;
}

struct Verdict {
  double loop_ns = 0;
  char error[240] = {};
};

}  // namespace

ProbeReport probe(const std::string& device, Milliseconds limit) {
  ProbeReport report;
  {
    const Result<UniqueFd> opened = open_file(device, O_RDWR);
    if (!opened) {
      report.reason = opened.error().message();
      return report;
    }
    report.device_opens = true;
  }
  Result<Pipe> pipe = make_pipe();
  if (!pipe) {
    report.reason = pipe.error().message();
    return report;
  }
  // A helper process: a guest that never comes back can then simply be killed.
  const pid_t helper = ::fork();
  if (helper == 0) {
    Verdict v;
    const Result<double> loop = time_loop(device);
    if (loop)
      v.loop_ns = *loop;
    else
      std::snprintf(v.error, sizeof v.error, "%s", loop.error().message().c_str());
    [[maybe_unused]] const ssize_t n = ::write(pipe->write_end.get(), &v, sizeof v);
    ::_exit(0);
  }
  pipe->write_end.reset();
  Verdict v;
  const bool answered = helper > 0 && wait_for(pipe->read_end.get(), POLLIN, deadline_after(limit)) &&
                        read_exact(pipe->read_end.get(), std::as_writable_bytes(std::span<Verdict, 1>(&v, 1)));
  if (helper > 0) {
    ::kill(helper, SIGKILL);
    while (::waitpid(helper, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (!answered) {
    report.reason = device + " opens, but a test guest did not end a loop of " + std::to_string(kIterations) + " rounds in " +
                    std::to_string(limit.count()) + " ms";
  } else if (v.error[0]) {
    report.reason = device + " opens, but a test guest failed: " + v.error;
  } else {
    report.loop_ns = v.loop_ns;
    report.usable = v.loop_ns <= kUsableLoopNs;
    char text[200];
    std::snprintf(text, sizeof text, "a test guest took %.1f ns per loop round (%s at most %.0f)", v.loop_ns,
                  report.usable ? "limit" : "it interprets instructions; usable is", kUsableLoopNs);
    report.reason = device + ": " + text;
  }
  return report;
}

}  // namespace ramet::kvm
