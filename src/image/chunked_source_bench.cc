// bench_chunked - random 4 KiB reads of a chunked base, all of it in the page cache and held, beside pread(2) of a raw file
// with the same content, in turns. In thousand reads per second of processor time, so that the ratio is that of the rates. And
// what an ask costs: a block of a chunk that is not held, from a daemon in the same process that has it in memory.
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>

#include "image/chunked_source.h"
#include "image/testing/chunk_daemon.h"
#include "report.h"

namespace {

using namespace ramet;
using namespace ramet::image;
using image::testing::ChunkDaemon;

constexpr uint64_t kDiskBytes = 512ull << 20;
constexpr uint64_t kDiskBlocks = kDiskBytes / kBlockBytes;
constexpr int kSamples = 60;
constexpr unsigned kTurns = 40;  // of a sample: ours and the bare one
constexpr unsigned kReadsPerTurn = 64;
constexpr int kAsks = 4000;

// What this thread used: on a shared computer wall time measures the neighbours.
double thread_seconds() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

void must(bool good) {
  if (good) return;
  std::fputs("bench_chunked: a read failed\n", stderr);
  std::exit(1);
}

UniqueFd make_raw(const std::string& folder) {
  UniqueFd file = open_file(folder, O_TMPFILE | O_RDWR, 0600).value();
  std::vector<uint64_t> mib((1 << 20) / sizeof(uint64_t));
  std::mt19937_64 random(7);
  for (uint64_t at = 0; at < kDiskBytes; at += 1 << 20) {
    for (uint64_t& word : mib) word = random();
    must(pwrite_all(file.get(), std::as_bytes(std::span(mib)), at).has_value());
  }
  return file;
}

struct Disks {
  explicit Disks(const std::string& folder) : raw(make_raw(folder)), daemon(raw.duplicate().value(), kDiskBlocks) {}

  // All of it becomes held.
  void warm() {
    daemon.give_descriptors(true);
    std::vector<std::byte> block(kBlockBytes);
    for (uint64_t b = 0; b < kDiskBlocks; b++) read(source, b, block, Wait::kAllowed);
  }
  static void read(const ChunkedSource& source, uint64_t block, std::span<std::byte> to, Wait wait) {
    const iovec v{to.data(), to.size()};
    const Result<bool> done = source.read({block, 1}, {&v, 1}, wait);
    must(done && *done);
  }

  UniqueFd raw;
  ChunkDaemon daemon;
  ChunkedSource source{kDiskBlocks, daemon.connect()};
};

struct Sample {
  double ours = 0, bare = 0;  // seconds
};

Sample measure(const Disks& disks, Wait wait, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> buffer(kReadsPerTurn * kBlockBytes);
  uint64_t blocks[kReadsPerTurn];
  const auto to = [&](unsigned i) { return std::span(buffer).subspan(i * kBlockBytes, kBlockBytes); };
  const auto ours = [&] {
    for (unsigned i = 0; i < kReadsPerTurn; i++) Disks::read(disks.source, blocks[i], to(i), wait);
  };
  const auto bare = [&] {
    for (unsigned i = 0; i < kReadsPerTurn; i++)
      must(::pread(disks.raw.get(), to(i).data(), kBlockBytes, static_cast<off_t>(blocks[i] * kBlockBytes)) ==
           static_cast<ssize_t>(kBlockBytes));
  };
  Sample sample;
  for (unsigned turn = 0; turn < kTurns; turn++) {
    for (uint64_t& block : blocks) block = random() % kDiskBlocks;
    const bool ours_first = turn % 2 == 0;
    const double begin = thread_seconds();
    ours_first ? ours() : bare();
    const double middle = thread_seconds();
    ours_first ? bare() : ours();
    const double end = thread_seconds();
    sample.ours += ours_first ? middle - begin : end - middle;
    sample.bare += ours_first ? end - middle : middle - begin;
  }
  return sample;
}

bench::Row compare(const Disks& disks, const std::string& name, Wait wait, unsigned threads) {
  bench::Row row{name, "k/s", {}, {}, ""};
  constexpr double kReads = kTurns * kReadsPerTurn / 1000.0;
  for (unsigned s = 0; s < kSamples; s++) {
    std::vector<Sample> samples(threads);
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; t++) running.emplace_back([&, t] { samples[t] = measure(disks, wait, s * threads + t); });
    for (std::thread& thread : running) thread.join();
    for (const Sample& sample : samples) {
      row.measured.add(kReads / sample.ours);
      row.floor.add(kReads / sample.bare);
    }
  }
  return row;
}

bench::Row asks(Disks& disks, bool descriptors) {
  bench::Row row{descriptors ? "a block whose chunk is lent with the answer" : "a block by its frame", "us", {}, {}, ""};
  disks.daemon.give_descriptors(descriptors);
  std::vector<std::byte> block(kBlockBytes);
  std::mt19937_64 random(3);
  std::optional<ChunkedSource> fresh;
  for (int i = 0; i < kAsks; i++) {
    if (!fresh || descriptors) fresh.emplace(kDiskBlocks, disks.daemon.connect());
    if (descriptors && i >= kAsks / 20) break;
    const int64_t begin = monotonic_ns();
    Disks::read(*fresh, random() % kDiskBlocks, block, Wait::kAllowed);
    row.measured.add(static_cast<double>(monotonic_ns() - begin) / 1000);
  }
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Reads of a chunked base beside pread of a raw file.");
  std::string json, folder = std::filesystem::temp_directory_path();
  app.add_option("--json", json, "write rows to this file");
  app.add_option("--dir", folder, "folder for the raw file (512 MiB; its chunks take as much in /tmp)");
  CLI11_PARSE(app, argc, argv);
  bench::Report report("chunked", json);
  Disks disks(folder);
  disks.warm();
  report.add(compare(disks, "4 KiB random read, held and warm (floor: pread)", Wait::kAllowed, 1));
  report.add(compare(disks, "the same without waiting (floor: pread)", Wait::kNever, 1));
  report.add(compare(disks, "two threads at once (floor: pread)", Wait::kAllowed, 2));
  report.add(asks(disks, false));
  report.add(asks(disks, true));
  return report.finish();
}
