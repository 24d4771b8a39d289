#include "metrics.h"

#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/file.h"

namespace ramet::guest {
namespace {

uint64_t meminfo_bytes(const std::string& text, const std::string& key) {
  const size_t at = text.find(key + ":");
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + key.size() + 1, nullptr, 10) * 1024;
}

void read_memory(abi::MetricsReport& report) {
  const Result<std::string> text = read_file("/proc/meminfo", 64u << 10);
  if (!text) return;
  report.set_memory_total_bytes(meminfo_bytes(*text, "MemTotal"));
  report.set_memory_available_bytes(meminfo_bytes(*text, "MemAvailable"));
  report.set_memory_free_bytes(meminfo_bytes(*text, "MemFree"));
}

void read_cpu(abi::MetricsReport& report) {
  const Result<std::string> text = read_file("/proc/stat", 1u << 20);
  unsigned long long user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0;
  if (!text || std::sscanf(text->c_str(), "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &iowait, &irq,
                           &softirq) < 7)
    return;
  const uint64_t ns_per_tick = 1'000'000'000ull / static_cast<uint64_t>(::sysconf(_SC_CLK_TCK));
  report.set_cpu_busy_ns((user + nice + system + irq + softirq) * ns_per_tick);
  report.set_cpu_idle_ns((idle + iowait) * ns_per_tick);
}

}  // namespace

uint64_t uptime_ns() {
  timespec ts{};
  ::clock_gettime(CLOCK_BOOTTIME, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(ts.tv_nsec);
}

abi::MetricsReport read_metrics() {
  abi::MetricsReport report;
  read_memory(report);
  read_cpu(report);
  struct sysinfo info {};
  if (::sysinfo(&info) == 0) {
    constexpr double kLoadScale = 1 << SI_LOAD_SHIFT;
    report.set_load_1m(static_cast<double>(info.loads[0]) / kLoadScale);
    report.set_load_5m(static_cast<double>(info.loads[1]) / kLoadScale);
    report.set_load_15m(static_cast<double>(info.loads[2]) / kLoadScale);
    report.set_processes(info.procs);
  }
  struct statvfs disk {};
  if (::statvfs("/", &disk) == 0) {
    report.set_disk_total_bytes(static_cast<uint64_t>(disk.f_blocks) * disk.f_frsize);
    report.set_disk_available_bytes(static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize);
  }
  report.set_uptime_ns(uptime_ns());
  report.set_cpus(static_cast<uint32_t>(::sysconf(_SC_NPROCESSORS_ONLN)));
  return report;
}

}  // namespace ramet::guest
