// bench_cold - one 4 KiB block of a disk that nobody has at hand: the monitor's block source asks the daemon's chunk server,
// which reads the frame from its pack on disk. No chunk cached, none filled, no frame kept decoded, packs out of the page cache
// before each read. The floor, in turn with it: an O_DIRECT read of 4 KiB of a raw file, and the decoding (only zstd's) of a
// frame of the same disk. Both on the same file system; the disk's content is what lies below /usr.
#include "image/chunked_source.h"  // before the manifest, whose kZeros is the name of an enumerator here

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <random>

#include "base/clock.h"
#include "base/file.h"
#include "base/mapped_region.h"
#include "chunk/pack.h"
#include "host/images/chunk_server.h"
#include "must.h"
#include "report.h"

namespace {

namespace fs = std::filesystem;
using namespace ramet;
using bench::die;
using bench::must;
using image::kBlockBytes;

constexpr uint64_t kDiskBytes = 512u << 20;
constexpr uint64_t kDiskBlocks = kDiskBytes / kBlockBytes;
constexpr int kReads = 3000;

// Files, one behind the other, each from the beginning of a block, until the disk is full.
void fill_from(const fs::path& from, const std::string& path) {
  const UniqueFd out = must(open_file(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
  uint64_t at = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(from)) {
    if (at >= kDiskBytes) break;
    if (!entry.is_regular_file() || entry.is_symlink() || entry.file_size() == 0) continue;
    std::vector<std::byte> bytes((std::min(entry.file_size(), kDiskBytes - at) + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
    const UniqueFd file = must(open_file(entry.path(), O_RDONLY));
    if (::pread(file.get(), bytes.data(), bytes.size(), 0) < 0) continue;
    must(pwrite_all(out.get(), bytes, at));
    at += bytes.size();
  }
  if (at < kDiskBytes) die(from.string() + " has only " + std::to_string(at >> 20) + " MiB of files");
  if (::fsync(out.get()) < 0) die("sync of the raw file");
}

std::unique_ptr<host::ImageStore> open_store(const std::string& directory) {
  host::ImageStoreOptions options;
  options.directory = directory;
  return must(host::ImageStore::open(std::move(options)));
}

void drop_from_page_cache(const std::string& packs) {
  for (const fs::directory_entry& pack : fs::directory_iterator(packs)) {
    const UniqueFd file = must(open_file(pack.path(), O_RDONLY));
    if (::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) != 0) die("a pack stays in the page cache");
  }
}

class Subject {
 public:
  explicit Subject(const std::string& folder) : folder_(folder), images_(open_store(folder + "/store")) {
    fill_from("/usr", raw_path());
    const UniqueFd raw = must(open_file(raw_path(), O_RDONLY));
    image_ = must(images_->import_raw({host::ImageSpace::kUser, "disk"}, raw.get(), nullptr));
    server_ = must(host::ChunkServer::start(reader_, {.workers = 2, .max_named = 1, .find = {}}));
    source_.emplace(kDiskBlocks, must(server_->attach(image_)));
    raw_ = must(open_file(raw_path(), O_RDONLY | O_DIRECT));
  }

  // Nullopt: zeros.
  std::optional<chunk::FramePlace> frame_of(uint64_t block) {
    const Digest name = must(image_->chunk(block / image::kChunkBlocks));
    if (name == image::kZeros) return std::nullopt;
    uint64_t at = block / image::kChunkBlocks * image::kChunkBlocks;
    for (const chunk::Extent& e : must(images_->chunks().index().recipe(name)).extents)
      if ((at += e.blocks) > block)
        return e.frame ? std::optional(must(images_->chunks().index().frame(*e.frame))) : std::nullopt;
    return std::nullopt;
  }

  double through_the_source_us(uint64_t block) {
    drop_from_page_cache(folder_ + "/store/packs");
    const iovec to{block_.data(), kBlockBytes};
    const int64_t begin = monotonic_ns();
    if (!must(source_->read({block, 1}, {&to, 1}, image::Wait::kAllowed))) die("a read that may wait did not");
    return static_cast<double>(monotonic_ns() - begin) / 1000;
  }

  double floor_us(uint64_t block, const chunk::FramePlace& place) {
    stored_.resize(place.entry.stored_bytes);
    must(images_->chunks().packs().read(place.pack, place.entry.offset, stored_));
    const std::span<std::byte> plain = std::span(plain_).first(place.entry.blocks * kBlockBytes);
    const int64_t begin = monotonic_ns();
    must(pread_exact(raw_.get(), block_.bytes().first(kBlockBytes), block * kBlockBytes));
    must(decoder_.decode(place.entry, stored_, plain, chunk::FrameProof::kCallers));
    return static_cast<double>(monotonic_ns() - begin) / 1000;
  }

 private:
  std::string raw_path() const { return folder_ + "/raw"; }

  const std::string folder_;
  const std::unique_ptr<host::ImageStore> images_;
  host::DiskReader reader_{*images_, {.fill = {.after_misses = 0}, .decoded_bytes = 0}};
  std::shared_ptr<host::OpenImage> image_;
  std::unique_ptr<host::ChunkServer> server_;
  std::optional<image::ChunkedSource> source_;
  UniqueFd raw_;
  // For O_DIRECT in whole pages.
  const MappedRegion block_ = must(MappedRegion::map(kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
  std::vector<std::byte> stored_, plain_ = std::vector<std::byte>(chunk::kMaxFrameBytes);
  chunk::FrameDecoder decoder_;
};

bench::Row cold_reads(Subject& subject) {
  bench::Row row{"cold 4 KiB random read (floor: O_DIRECT read, one frame decoded)", "us", {}, {}, ""};
  std::mt19937_64 random(5);
  for (int i = 0; i < kReads; i++) {
    const uint64_t block = random() % kDiskBlocks;
    const std::optional<chunk::FramePlace> place = subject.frame_of(block);
    if (!place) continue;
    row.floor.add(subject.floor_us(random() % kDiskBlocks, *place));
    row.measured.add(subject.through_the_source_us(block));
  }
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Cold reads through the block source beside a raw disk.");
  std::string json, folder = fs::temp_directory_path();
  app.add_option("--json", json, "write rows to this file");
  app.add_option("--dir", folder, "folder for disk and store, 0.8 GiB, for a while; on a file system that has O_DIRECT");
  CLI11_PARSE(app, argc, argv);
  folder += "/bench_cold.XXXXXX";
  if (!::mkdtemp(folder.data())) die("make " + folder);
  bench::Report report("cold", json);
  {
    Subject subject(folder);
    report.add(cold_reads(subject));
  }
  fs::remove_all(folder);
  return report.finish();
}
