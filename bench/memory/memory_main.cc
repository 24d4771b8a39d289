// bench_memory - what memory costs on its way into the store and back. A process of 1 GiB stands still and is committed, beside
// SHA-256 of as many bytes as the chunks have that it touched; an image becomes the files that machines map, beside pwrite(2)
// of the same bytes. In turns. Rates are per second of processor time, of all threads together, so that the ratio does not
// depend on how many there are; times are the user's.
#include <time.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <random>

#include "chunk/digest.h"
#include "chunk/directory_storage.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/temporary_directory.h"
#include "commit/memory_commit.h"
#include "commit/memory_files.h"
#include "commit/memory_fill.h"
#include "commit/testing/frozen_process.h"
#include "commit/testing/private_ram.h"
#include "must.h"
#include "report.h"

namespace {

using namespace ramet;
using bench::must;
using commit::testing::FrozenProcess;
using commit::testing::PrivateRam;

constexpr uint64_t kMiB = 1ull << 20, kRam = 1024 * kMiB, kPage = 4096, kChunk = 512 << 10;
constexpr uint64_t kRunPages = 8;  // guests write a few pages here and a few there

struct Moment {
  double cpu_s, wall_s;
};
Moment now() {
  timespec t;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return {static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9,
          std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}
Moment took(const auto& work) {
  const Moment begin = now();
  work();
  const Moment end = now();
  return {end.cpu_s - begin.cpu_s, end.wall_s - begin.wall_s};
}

// A third of each page compresses well.
void fill_page(std::span<std::byte> page, uint64_t seed) {
  chunk::testing::fill_with_noise(page.first(2728), seed);
  std::ranges::fill(page.subspan(2728), std::byte{'a'});
}

struct Files {
  UniqueFd even = must(make_memfd("even", kRam)), odd = must(make_memfd("odd", kRam));
};

class Subject {
 public:
  explicit Subject(const std::string& folder)
      : store_(must(chunk::Store::open(must(chunk::DirectoryStorage::open(folder + "/packs")), folder + "/index.db", {}))),
        base_(make_base()) {}

  // Every other 2 MiB block of the image is zero.
  static bool holds(uint64_t block) { return block % 2 == 0; }

  image::ManifestRoot make_base() {
    const Files files;
    image::ZeroMap zeros(kRam);
    std::vector<std::byte> block(image::kRamBlockBytes);
    for (uint64_t b = 0; b < zeros.blocks(); b++) {
      zeros.set_zero(b, !holds(b));
      if (!holds(b)) continue;
      for (uint64_t at = 0; at < block.size(); at += kPage) fill_page(std::span(block).subspan(at, kPage), b * 512 + at + 1);
      const uint64_t offset = b * image::kRamBlockBytes;
      must(pwrite_all(offset / image::segment_bytes(kRam) % 2 == 0 ? files.even.get() : files.odd.get(), block, offset));
    }
    return commit(commit::MemoryFiles(zeros, files.even.get(), files.odd.get()),
                  must(image::Manifest::empty(image::ImageKind::kMemory, kRam / kPage)).root())
        .root;
  }

  struct Committed {
    image::ManifestRoot root;
    commit::MemoryCommit counts;
  };
  Committed commit(const commit::MemoryView& memory, const image::ManifestRoot& base) {
    image::Manifest manifest = commit::manifest_in(*store_, base);
    chunk::Batch batch = store_->begin();
    const commit::MemoryCommit counts = must(commit::commit_memory(memory, manifest, *store_, batch));
    must(batch.commit());
    return {manifest.root(), counts};
  }

  void commits(bench::Report& report, uint64_t dirty_mib, int rounds) {
    const std::string name = std::to_string(dirty_mib) + " MiB dirty of 1 GiB";
    bench::Row rate{name + " (floor: SHA-256)", "MB/s", {}, {}, ""}, time{name + ", until it is durable", "ms", {}, {}, ""};
    const std::vector<std::byte> bytes = chunk::testing::noise(kChunk, 1);
    for (int round = 0; round < rounds; round++) {
      const PrivateRam ram = mapped();
      dirty(ram, dirty_mib, static_cast<uint64_t>(round) + dirty_mib * 100);
      const FrozenProcess process;
      const commit::ProcessMemory memory = must(process.memory(ram.data(), ram.size()));
      commit::MemoryCommit counts;
      const Moment ours = took([&] { counts = commit(memory, base_).counts; });
      const Moment bare = took([&] {
        for (uint64_t i = 0; i < counts.touched_chunks; i++) must(check(chunk::sha256(bytes)));
      });
      const double hashed = static_cast<double>(counts.touched_chunks * kChunk) / 1e6;
      rate.measured.add(hashed / ours.cpu_s);
      rate.floor.add(hashed / bare.cpu_s);
      time.measured.add(ours.wall_s * 1000);
      rate.note = std::to_string(counts.touched_chunks) + " chunks";
    }
    report.add(rate);
    report.add(time);
  }

  void fills(bench::Report& report, int rounds) {
    bench::Row row{"1 GiB image, half of it zero, into files (floor: pwrite)", "ms", {}, {}, ""};
    bench::Row cpu{"the same, processor time", "ms", {}, {}, ""};
    image::Manifest manifest = commit::manifest_in(*store_, base_);
    const image::ZeroMap zeros = must(image::zero_map_of(manifest));
    const std::vector<std::byte> bytes = chunk::testing::noise(image::segment_bytes(kRam), 1);
    for (int round = 0; round < rounds; round++) {
      const Files ours_to, bare_to;
      const Moment ours =
          took([&] { must(commit::fill_memory(manifest, *store_, zeros, ours_to.even.get(), ours_to.odd.get())); });
      const Moment bare = took([&] {
        for (const image::RamPiece& piece : zeros.pieces())
          if (!piece.anonymous)
            must(pwrite_all(piece.file == 0 ? bare_to.even.get() : bare_to.odd.get(), std::span(bytes).first(piece.length),
                            piece.offset));
      });
      row.measured.add(ours.wall_s * 1000);
      row.floor.add(bare.wall_s * 1000);
      cpu.measured.add(ours.cpu_s * 1000);
      cpu.floor.add(bare.cpu_s * 1000);
    }
    report.add(row);
    report.add(cpu);
  }

 private:
  static Status check(const Digest& digest) {
    return digest == image::kZeros ? fail(ErrorKind::kInternal, "a digest of zeros") : Status();
  }
  PrivateRam mapped() {
    image::Manifest manifest = commit::manifest_in(*store_, base_);
    const image::ZeroMap zeros = must(image::zero_map_of(manifest));
    const Files files;
    must(commit::fill_memory(manifest, *store_, zeros, files.even.get(), files.odd.get()));
    PrivateRam ram(zeros, files.even.get(), files.odd.get());
    ::madvise(ram.data(), ram.size(), MADV_NOHUGEPAGE);
    return ram;
  }
  // Where the image holds something: there it has something to be compared with.
  static void dirty(const PrivateRam& ram, uint64_t mib, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (uint64_t runs = mib * kMiB / kPage / kRunPages; runs > 0; runs--) {
      const uint64_t block = random() % (kRam / image::kRamBlockBytes / 2) * 2;
      const uint64_t first = block * 512 + random() % (512 - kRunPages);
      for (uint64_t page = first; page < first + kRunPages; page++) fill_page(ram.page(page), random());
    }
  }

  const std::unique_ptr<chunk::Store> store_;
  const image::ManifestRoot base_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Memory into the store beside SHA-256, and out of it beside pwrite.");
  std::string json, folder = std::filesystem::temp_directory_path();
  int rounds = 8;
  app.add_option("--json", json, "write rows to this file");
  app.add_option("--dir", folder, "folder for the store (3 GiB)");
  app.add_option("--rounds", rounds, "of each case")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  bench::Report report("memory", json);
  ::setenv("TMPDIR", folder.c_str(), 1);
  const chunk::testing::TemporaryDirectory directory;
  Subject subject(directory.path);
  for (const uint64_t mib : {8, 32, 128}) subject.commits(report, mib, rounds);
  subject.fills(report, rounds);
  return report.finish();
}
