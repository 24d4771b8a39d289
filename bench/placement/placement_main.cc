// bench_placement - what it costs to get a forked process into its own cgroup: a write to cgroup.procs, with and without the
// mount option favordynmods, against clone3(CLONE_INTO_CGROUP). The process has 64 MiB of touched memory, as a small VM has.
//
// Needs root and cgroup v2. The two mount options are tried by remounting; what cannot be had is a row that says why. Each
// sample waits a moment first: the kernel's grace period, which is the cost, is shared by writes that follow each other
// closely.
//
// Usage: bench_placement [--n N] [--json FILE]
#include <fcntl.h>
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "report.h"

using namespace ramet;
using namespace ramet::bench;

namespace {

struct Options {
  int n = 50;
  bool remount = false;
  std::string json;
};

struct Mount {
  std::string path;
  bool favordynmods;
};

std::optional<Mount> cgroup2_mount() {
  std::ifstream mounts("/proc/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, path, type, flags;
    words >> device >> path >> type >> flags;
    if (type == "cgroup2") return Mount{path, flags.find("favordynmods") != std::string::npos};
  }
  return std::nullopt;
}

// Two leaves of our own, removed at the end.
class Leaf {
 public:
  explicit Leaf(const std::string& mount) : path_(mount + "/ramet-bench-" + std::to_string(getpid())) {
    if (mkdir(path_.c_str(), 0755) != 0) path_.clear();
    directory_ = UniqueFd(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  ~Leaf() { rmdir(path_.c_str()); }
  Leaf(const Leaf&) = delete;
  Leaf& operator=(const Leaf&) = delete;
  bool valid() const { return directory_.valid(); }
  int directory() const { return directory_.get(); }
  std::string procs() const { return path_ + "/cgroup.procs"; }

 private:
  std::string path_;
  UniqueFd directory_;
};

void end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

bool sample_write(const Leaf& leaf, Series& ms) {
  const int64_t start = monotonic_ns();
  const pid_t pid = fork();
  if (pid == 0)
    for (;;) pause();
  const std::string text = std::to_string(pid);
  const UniqueFd procs(open(leaf.procs().c_str(), O_WRONLY | O_CLOEXEC));
  const bool written = write(procs.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ms.add(static_cast<double>(monotonic_ns() - start) / 1e6);
  end(pid);
  return written;
}

bool sample_clone(const Leaf& leaf, Series& ms) {
  clone_args args{};
  args.flags = CLONE_INTO_CGROUP;
  args.exit_signal = SIGCHLD;
  args.cgroup = static_cast<uint64_t>(leaf.directory());
  const int64_t start = monotonic_ns();
  const long pid = syscall(SYS_clone3, &args, sizeof args);
  if (pid == 0)
    for (;;) pause();
  ms.add(static_cast<double>(monotonic_ns() - start) / 1e6);
  if (pid > 0) end(static_cast<pid_t>(pid));
  return pid > 0;
}

double plain_fork_ms() {
  const int64_t start = monotonic_ns();
  const pid_t pid = fork();
  if (pid == 0)
    for (;;) pause();
  const double ms = static_cast<double>(monotonic_ns() - start) / 1e6;
  end(pid);
  return ms;
}

using Sample = bool (*)(const Leaf&, Series&);

void measure(Report& report, const std::string& name, const Leaf& leaf, Sample sample, int n) {
  Series ms, plain;
  for (int i = 0; i < n; i++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    if (!sample(leaf, ms)) {
      report.skip(name, std::strerror(errno));
      return;
    }
    plain.add(plain_fork_ms());
  }
  report.add({name, "ms", ms, plain, "floor: fork(2) alone"});
}

// Kernels know no word for "off": a remount without the option clears it.
bool set_favordynmods(const Mount& mount, bool on) {
  if (::mount("none", mount.path.c_str(), "cgroup2", MS_REMOUNT | MS_RELATIME, on ? "favordynmods" : "") != 0) return false;
  const std::optional<Mount> now = cgroup2_mount();
  return now && now->favordynmods == on;
}

void measure_both_ways(Report& report, const Leaf& leaf, bool favordynmods, int n) {
  const std::string suffix = favordynmods ? ", favordynmods" : ", not favordynmods";
  measure(report, "fork, then cgroup.procs" + suffix, leaf, sample_write, n);
  measure(report, "clone3(CLONE_INTO_CGROUP)" + suffix, leaf, sample_clone, n);
}

void run(Report& report, const Mount& mount, const Options& options) {
  const Leaf leaf(mount.path);
  if (!leaf.valid()) {
    report.skip("all", "cannot make a cgroup in " + mount.path + ": " + std::strerror(errno));
    return;
  }
  constexpr size_t kTouched = 64 << 20;
  void* memory = mmap(nullptr, kTouched, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(memory, 1, kTouched);
  measure_both_ways(report, leaf, mount.favordynmods, options.n);
  const std::string other = mount.favordynmods ? "not favordynmods" : "favordynmods";
  if (!options.remount) {
    report.skip("placement, " + other, "changes an option of the whole host: ask for it with --remount");
  } else if (!set_favordynmods(mount, !mount.favordynmods)) {
    report.skip("placement, " + other, "cannot remount " + mount.path);
  } else {
    measure_both_ways(report, leaf, !mount.favordynmods, options.n);
    if (!set_favordynmods(mount, mount.favordynmods))
      report.fail("restore", mount.path + " could not be put back: remount it by hand");
  }
  munmap(memory, kTouched);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Placing a forked process into its cgroup.");
  app.add_option("--n", options.n, "samples per way");
  app.add_flag("--remount", options.remount, "also measure with favordynmods switched (host-wide, put back afterwards)");
  app.add_option("--json", options.json, "one JSON object per row to this file");
  CLI11_PARSE(app, argc, argv);

  Report report("placement", options.json);
  const std::optional<Mount> mount = cgroup2_mount();
  if (!mount)
    report.skip("all", "no cgroup v2 hierarchy is mounted");
  else if (geteuid() != 0)
    report.skip("all", "needs root");
  else
    run(report, *mount, options);
  return report.finish();
}
