// bench_resume - how long a paused sandbox takes until it runs again, by the size of its memory image, with the memory filled
// before it starts and while it runs. A tiny guest of the same working set in each; the rest of its RAM is data that it never
// touches. Two times: until the resume is answered (the machine runs), and until the guest has gone over its whole disk once.
// The floor of a row is the smallest image, so that the ratio says how much the size costs. Needs a KVM.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "commit/stored_manifest.h"
#include "host/ids.h"
#include "host/images/images.h"
#include "host/snapshot_details.h"
#include "host/testing/keeper_test.h"
#include "must.h"
#include "report.h"

namespace {

using namespace ramet;
using namespace ramet::host;
using bench::must;

constexpr uint64_t kMiB = 1ull << 20, kChunk = 512 << 10;
constexpr uint64_t kDifferentChunks = 16;  // enough for the decoder to have work, little enough to be made quickly

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

class Subject {
 public:
  explicit Subject(std::string root) : root_(std::move(root)) {
    options_ = host::testing::tiny_options(root_);
    options_.boot_deadline = options_.child_deadline = Milliseconds(300'000);
    open(MemoryFill::kOnDemand);
    must(host::testing::upload_tiny(*host_, "keeper", "keeper", host::testing::keeper_disk(0)));
  }
  void open(MemoryFill fill) {
    host_.reset();
    options_.memory_fill = fill;
    host_ = must(Host::open(options_));
  }
  // A paused sandbox with that much RAM, all of it data.
  std::string paused_with(uint64_t memory_mib) {
    CreateOptions create;
    create.template_name = "keeper";
    create.memory_mib = memory_mib;
    const std::string first = must(host_->create(create)).id;
    wait_pass(first, 0);
    SnapshotOptions loose;
    loose.strictness = ForkStrictness::kLoose;
    const std::string small = must(host_->snapshot(first, loose)).info.id;
    must(host_->remove(first));
    host_.reset();
    const std::string large = with_data(small);
    open(MemoryFill::kOnDemand);
    CreateOptions from;
    from.snapshot = large;
    const std::string id = must(host_->create(from)).id;
    wait_pass(id, passes(id));
    must(host_->pause(id));
    return id;
  }
  struct Times {
    double running_ms, pass_ms;
  };
  Times resume(const std::string& id) {
    const size_t before = passes(id);
    const auto begin = std::chrono::steady_clock::now();
    must(host_->resume(id));
    const double running = ms_since(begin);
    wait_pass(id, before);
    const Times times{running, ms_since(begin)};
    must(host_->pause(id));
    return times;
  }
  void remove(const std::string& id) { must(host_->remove(id)); }

 private:
  size_t passes(const std::string& id) { return static_cast<size_t>(std::ranges::count(must(host_->logs(id)), '\n')); }
  void wait_pass(const std::string& id, size_t before) {
    for (int i = 0; passes(id) <= before; i++) {
      if (i > 300'000) bench::die("the guest does not get on");
      std::this_thread::sleep_for(Milliseconds(1));
    }
  }
  // The same snapshot with noise in all chunks that were zero.   Requires: no host is open.
  std::string with_data(const std::string& snapshot) {
    Images::Options options;
    options.store.directory = root_ + "/state/store";
    options.store.cache_bytes = 64u << 20;
    const std::unique_ptr<Images> images = must(Images::open(std::move(options)));
    ImageStore& store = images->store();
    commit::SnapshotRecord record = must(store.snapshots().get(snapshot));
    chunk::Batch batch = store.chunks().begin();
    std::vector<Digest> noise;
    for (uint64_t i = 0; i < kDifferentChunks; i++) noise.push_back(*must(batch.put(chunk::testing::noise(kChunk, i + 1))));
    image::Manifest memory = commit::manifest_in(store.chunks(), record.machine->memory);
    for (uint64_t chunk = 0; chunk < record.machine->memory.blocks * image::kBlockBytes / kChunk; chunk++)
      if (must(memory.chunk(chunk)) == image::kZeros) must(memory.set(chunk, noise[chunk % kDifferentChunks]));
    must(commit::seal_into(batch, memory));
    record.machine->memory = memory.root();
    must(batch.commit());
    SnapshotDetails details = must(decode_details(record.details));
    details.info.id = new_id("sn");
    record.details = encode_details(details);
    must(store.snapshots().add(details.info.id, batch, record));
    return details.info.id;
  }

  const std::string root_;
  HostOptions options_;
  std::unique_ptr<Host> host_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Resumes by the size of the memory image");
  std::string json, directory = "/var/tmp";
  int rounds = 30;
  std::vector<uint64_t> sizes{128, 512, 2048};
  app.add_option("--json", json, "also write the rows to this file");
  app.add_option("--n", rounds, "resumes per row")->capture_default_str();
  app.add_option("--sizes", sizes, "MiB of memory")->capture_default_str();
  app.add_option("--dir", directory, "where state is kept for a while")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  bench::Report report("resume", json);
  if (::access("/dev/kvm", R_OK | W_OK) != 0) {
    report.skip("resume", "no usable /dev/kvm");
    return report.finish();
  }
  log_init("bench_resume", "", LogLevel::kError);
  std::string root = directory + "/bench-resume-XXXXXX";
  if (!::mkdtemp(root.data())) bench::die("no directory in " + directory);
  {
    Subject subject(root);
    std::map<std::string, bench::Series> smallest;
    for (const uint64_t size : sizes) {
      const std::string id = subject.paused_with(size);
      for (const auto& [fill, name] :
           {std::pair(MemoryFill::kOnDemand, "on demand"), std::pair(MemoryFill::kWhole, "before it starts")}) {
        subject.open(fill);
        bench::Series running, pass;
        for (int i = 0; i < rounds; i++) {
          const Subject::Times times = subject.resume(id);
          running.add(times.running_ms);
          pass.add(times.pass_ms);
        }
        for (const auto& [what, series] : {std::pair("runs", &running), std::pair("first pass", &pass)}) {
          const std::string key = std::string(name) + ", " + what;
          if (smallest[key].empty()) smallest[key] = *series;
          report.add({std::to_string(size) + " MiB, memory " + key, "ms", *series, smallest[key], {}});
        }
      }
      subject.remove(id);
    }
  }
  std::error_code left;
  std::filesystem::remove_all(root, left);
  return report.finish();
}
