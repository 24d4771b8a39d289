// bench_fanout - many children of one machine: how long until all run, and what each one costs in memory.
//
// Forks a tiny guest `total` times, `width` children per request, all alive at the end. Memory per fork is what the host has
// less (MemAvailable), beside what the processes say (Pss); "own" guest RAM is Pss_Anon. Then all are ended, timed too.
//
// Usage: bench_fanout [--total N] [--width N] [--ram MIB] [--json FILE]
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>

#include "floor/client.h"
#include "guests/lib/protocol.h"
#include "report.h"
#include "vm/harness/processes.h"
#include "vm/harness/vm.h"

using namespace ramet;
using namespace ramet::bench;
using vmtest::Vm;

namespace {

struct Options {
  size_t total = 1000;
  size_t width = 10;
  uint64_t ram_mib = 128;
  std::string json;
};

double available_mib() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  for (uint64_t kib = 0; file >> key >> kib; file.ignore(100, '\n'))
    if (key == "MemAvailable:") return static_cast<double>(kib) / 1024;
  return 0;
}

double since_ms(int64_t start) { return static_cast<double>(monotonic_ns() - start) / 1e6; }

Result<std::vector<std::unique_ptr<Vm>>> fork_some(Vm& parent, size_t count, Series& per_fork_ms) {
  std::vector<vmtest::PreparedChild> prepared;
  for (size_t i = 0; i < count; i++) {
    TRY_ASSIGN(vmtest::PreparedChild child, parent.prepare_child());
    prepared.push_back(std::move(child));
  }
  const int64_t start = monotonic_ns();
  TRY_ASSIGN(vmtest::ForkOutcome outcome, parent.fork(std::move(prepared)));
  if (!outcome.failures.empty()) return tl::unexpected<Error>(outcome.failures.front());
  for (const std::unique_ptr<Vm>& child : outcome.children) {
    TRY(child->wait_for_kind(guests::kTick, deadline_after(std::chrono::seconds(60))));
  }
  per_fork_ms.add(since_ms(start) / static_cast<double>(count));
  return std::move(outcome.children);
}

// Each child holds four descriptors here.
void raise_descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Memory per child of the floor programme.
Result<double> floor_memory_mib(const Options& options) {
  constexpr uint64_t kFillStartMiB = 32, kFillMiB = 2;
  TRY_ASSIGN(FloorClient floor,
             FloorClient::start(BaseShape{options.ram_mib, kFillStartMiB, kFillMiB}, vmtest::guest_path("counter")));
  const double before = available_mib();
  for (size_t i = 0; i < options.total; i++) TRY(floor.fork());
  const double used = before - available_mib();
  TRY(floor.end_children());
  return used / static_cast<double>(options.total);
}

Status run(Report& report, const Options& options) {
  raise_descriptor_limit();
  vmtest::BootOptions boot;
  boot.kernel = vmtest::guest_path("counter");
  boot.memory_mib = options.ram_mib;
  TRY_ASSIGN(std::unique_ptr<Vm> builder, Vm::boot(boot));
  TRY(builder->wait_for_kind(guests::kReady, deadline_after(std::chrono::seconds(10))));
  TRY_ASSIGN(vmtest::Image image, builder->capture());
  builder.reset();
  TRY_ASSIGN(std::unique_ptr<Vm> zygote, Vm::zygote(image));
  TRY_ASSIGN(std::unique_ptr<Vm> parent, zygote->fork_one());

  Series per_fork, whole, memory, floor_memory, pss, pss_anon, end;
  TRY_ASSIGN(double floor_mib, floor_memory_mib(options));
  floor_memory.add(floor_mib);
  std::vector<std::unique_ptr<Vm>> children;
  const double before = available_mib();
  const int64_t start = monotonic_ns();
  while (children.size() < options.total) {
    const size_t count = std::min(options.width, options.total - children.size());
    TRY_ASSIGN(std::vector<std::unique_ptr<Vm>> some, fork_some(*parent, count, per_fork));
    std::move(some.begin(), some.end(), std::back_inserter(children));
  }
  whole.add(since_ms(start));
  memory.add((before - available_mib()) / static_cast<double>(children.size()));
  for (size_t i = 0; i < children.size(); i += 50) {
    pss.add(static_cast<double>(vmtest::smaps_bytes(children[i]->pid(), "Pss")) / (1 << 20));
    pss_anon.add(static_cast<double>(vmtest::smaps_bytes(children[i]->pid(), "Pss_Anon")) / (1 << 20));
  }
  const size_t count = children.size();
  const int64_t ending = monotonic_ns();
  children.clear();
  end.add(since_ms(ending) / static_cast<double>(count));

  const std::string name = std::to_string(count) + " forks, " + std::to_string(options.width) + " at once, " +
                           std::to_string(options.ram_mib) + " MiB: ";
  report.add({name + "all run after", "ms", whole, {}, ""});
  report.add({name + "per fork", "ms", per_fork, {}, ""});
  report.add({name + "memory per fork (MemAvailable)", "MiB", memory, floor_memory, ""});
  report.add({name + "Pss of a child", "MiB", pss, {}, ""});
  report.add({name + "Pss_Anon of a child", "MiB", pss_anon, {}, ""});
  report.add({name + "end, per VM", "ms", end, {}, ""});
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Many forks of one microVM: time and memory.");
  app.add_option("--total", options.total, "children, all alive at the end");
  app.add_option("--width", options.width, "children per request");
  app.add_option("--ram", options.ram_mib, "RAM in MiB");
  app.add_option("--json", options.json, "one JSON object per row to this file");
  CLI11_PARSE(app, argc, argv);

  Report report("fanout", options.json);
  if (std::optional<std::string> reason = vmtest::cannot_run()) {
    report.skip("all", *reason);
    return report.finish();
  }
  Status done = run(report, options);
  if (!done) report.fail("all", done.error().to_string());
  return report.finish();
}
