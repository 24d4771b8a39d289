// bench_fork - what a live fork costs: ramet-vmm beside the floor programme, measured in turn in the same run.
//
// Cases: RAM 256 MiB to 8 GiB, dirt 0 to 512 MiB, clustered (one run of pages) and spread (evenly over all of the base that
// holds data, so that every 16 MiB segment is touched). Dirt lies in base parts, which cost most: 4 KiB page table entries.
// Rows per case: total (request to first port exit of the child), vCPU stop, fork(2), and the refault tail: what the parent's
// first write to a page costs more while the child lives. Then depth: the same fork 1, 16 and 64 generations deep, all
// ancestors alive, 1 MiB of new dirt per generation.
//
// Usage: bench_fork [--n N] [--ram MIB] [--dirt MIB] [--no-depth] [--json FILE]
#include <CLI/CLI.hpp>

#include <cstdio>

#include "fork/busy.h"
#include "fork/subject.h"
#include "guests/lib/protocol.h"
#include "report.h"

using namespace ramet;
using namespace ramet::bench;

namespace {

constexpr uint64_t kPagesPerMiB = 256;
constexpr uint64_t kFillStartMiB = 32;
constexpr int kWarmUp = 2;  // the first fork of a machine copies page tables that later ones share
constexpr int kRefaultSamples = 5;
constexpr uint64_t kRefaultMaxPages = 32 * kPagesPerMiB;

struct Options {
  int n = 30;
  std::vector<uint64_t> ram_mib = {256, 1024, 4096, 8192};
  std::vector<uint64_t> dirt_mib = {0, 32, 128, 512};
  bool depth = true;
  std::string json;
};

enum class Pattern { kClustered, kSpread };

struct Measured {
  Series total, stop, fork, refault_us;
};

BaseShape shape_for(uint64_t ram_mib) {
  const uint64_t fill = ram_mib / 4 * 3 - kFillStartMiB;
  return BaseShape{ram_mib, kFillStartMiB, std::min<uint64_t>(fill, 1024)};
}

uint64_t stride_for(const BaseShape& shape, uint64_t dirt_mib, Pattern pattern) {
  return pattern == Pattern::kClustered || dirt_mib == 0 ? 1 : shape.fill_mib / dirt_mib;
}

// Time of one kWrite command over `pages`.
Result<double> write_us(Subject& subject, uint64_t pages) {
  const int64_t start = monotonic_ns();
  TRY(subject.command(guests::kWrite, static_cast<uint32_t>(pages)));
  return static_cast<double>(monotonic_ns() - start) / 1e3;
}

Status dirty(Subject& subject, uint64_t first_mib, uint64_t stride, uint64_t pages) {
  TRY(subject.command(guests::kSetStart, static_cast<uint32_t>(first_mib * kPagesPerMiB)));
  TRY(subject.command(guests::kSetStride, static_cast<uint32_t>(stride)));
  if (pages > 0) TRY(subject.command(guests::kWrite, static_cast<uint32_t>(pages)));
  return {};
}

Status sample_fork(Subject& subject, Measured* out) {
  TRY_ASSIGN(ForkSample sample, subject.fork());
  TRY(subject.end_children());
  if (out == nullptr) return {};
  out->total.add(sample.total_ms);
  out->stop.add(sample.stop_ms);
  out->fork.add(sample.fork_ms);
  return {};
}

Status sample_refault(Subject& subject, uint64_t pages, Measured& out) {
  TRY(subject.fork());
  TRY_ASSIGN(double shared, write_us(subject, pages));
  TRY(subject.end_children());
  TRY_ASSIGN(double owned, write_us(subject, pages));
  out.refault_us.add((shared - owned) / static_cast<double>(pages));
  return {};
}

// Ramet and floor in turn, so that what else runs on the machine hits both.
Status measure(std::vector<Subject*> subjects, std::vector<Measured*> out, uint64_t dirt_pages, int n) {
  for (int i = -kWarmUp; i < n; i++)
    for (size_t s = 0; s < subjects.size(); s++) TRY(sample_fork(*subjects[s], i < 0 ? nullptr : out[s]));
  const uint64_t pages = std::min(dirt_pages, kRefaultMaxPages);
  for (int i = 0; pages > 0 && i < kRefaultSamples; i++)
    for (size_t s = 0; s < subjects.size(); s++) TRY(sample_refault(*subjects[s], pages, *out[s]));
  return {};
}

void add_rows(Report& report, const std::string& name, const Measured& ramet, const Measured& floor) {
  report.add({name + " total", "ms", ramet.total, floor.total, ""});
  report.add({name + " vcpu stop", "ms", ramet.stop, floor.stop, ""});
  report.add({name + " fork(2)", "ms", ramet.fork, floor.fork, ""});
  if (!ramet.refault_us.empty()) report.add({name + " refault per page", "us", ramet.refault_us, floor.refault_us, ""});
}

Status run_case(Report& report, const std::string& name, Subject& ramet, Subject& floor, const BaseShape& shape,
                uint64_t dirt_mib, Pattern pattern, int n) {
  Measured measured[2];
  const uint64_t pages = dirt_mib * kPagesPerMiB;
  for (Subject* subject : {&ramet, &floor}) {
    TRY(subject->fresh_machine());
    TRY(dirty(*subject, shape.fill_start_mib, stride_for(shape, dirt_mib, pattern), pages));
  }
  TRY(measure({&ramet, &floor}, {&measured[0], &measured[1]}, pages, n));
  add_rows(report, name, measured[0], measured[1]);
  return {};
}

void run_cases(Report& report, const Options& options, Subject& ramet, Subject& floor, const BaseShape& shape) {
  for (uint64_t dirt : options.dirt_mib) {
    for (Pattern pattern : {Pattern::kClustered, Pattern::kSpread}) {
      if (dirt == 0 && pattern == Pattern::kSpread) continue;
      const std::string name = "ram=" + std::to_string(shape.ram_mib) + " dirt=" + std::to_string(dirt) +
                               (dirt == 0                        ? ""
                                : pattern == Pattern::kClustered ? " clustered"
                                                                 : " spread");
      if (dirt > shape.fill_mib) {
        report.skip(name, "the dirt does not fit into " + std::to_string(shape.fill_mib) + " MiB of base");
        continue;
      }
      Status done = run_case(report, name, ramet, floor, shape, dirt, pattern, options.n);
      if (!done) report.fail(name, done.error().to_string());
    }
  }
}

Status run_depth(Report& report, Subject& ramet, Subject& floor, const BaseShape& shape, int n) {
  constexpr int kDepths[] = {1, 16, 64};
  constexpr uint64_t kFirstDirtMiB = 32, kDirtPerGeneration = 1;
  for (Subject* subject : {&ramet, &floor}) {
    TRY(subject->fresh_machine());
    TRY(dirty(*subject, shape.fill_start_mib, 1, kFirstDirtMiB * kPagesPerMiB));
  }
  int depth = 1;
  for (int goal : kDepths) {
    for (; depth < goal; depth++) {
      for (Subject* subject : {&ramet, &floor}) {
        TRY(subject->descend());
        TRY(dirty(*subject, shape.fill_start_mib + kFirstDirtMiB + static_cast<uint64_t>(depth), 1,
                  kDirtPerGeneration * kPagesPerMiB));
      }
    }
    Measured measured[2];
    TRY(measure({&ramet, &floor}, {&measured[0], &measured[1]}, 0, n));
    add_rows(report, "ram=" + std::to_string(shape.ram_mib) + " depth=" + std::to_string(depth), measured[0], measured[1]);
  }
  return {};
}

Status run_ram(Report& report, const Options& options, uint64_t ram_mib) {
  const BaseShape shape = shape_for(ram_mib);
  TRY_ASSIGN(std::unique_ptr<Subject> floor, make_floor(shape));
  TRY_ASSIGN(std::unique_ptr<Subject> ramet, make_ramet(shape));
  run_cases(report, options, *ramet, *floor, shape);
  constexpr uint64_t kDepthRamMiB = 1024;
  if (options.depth && ram_mib == kDepthRamMiB) {
    Status done = run_depth(report, *ramet, *floor, shape, options.n);
    if (!done) report.fail("depth", done.error().to_string());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Live fork of a microVM beside the bare system calls.");
  app.add_option("--n", options.n, "forks per case");
  app.add_option("--ram", options.ram_mib, "RAM sizes in MiB");
  app.add_option("--dirt", options.dirt_mib, "dirt in MiB");
  app.add_flag("!--no-depth", options.depth, "without the generations");
  app.add_option("--json", options.json, "one JSON object per row to this file");
  CLI11_PARSE(app, argc, argv);

  Report report("fork", options.json);
  if (std::optional<std::string> reason = vmtest::cannot_run()) {
    report.skip("all", *reason);
    return report.finish();
  }
  Status busy = run_busy(report, options.n);
  if (!busy) report.fail("busy guest", busy.error().to_string());
  for (uint64_t ram_mib : options.ram_mib) {
    Status done = run_ram(report, options, ram_mib);
    if (!done) report.fail("ram=" + std::to_string(ram_mib), done.error().to_string());
  }
  return report.finish();
}
