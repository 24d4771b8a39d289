#include "commit/memory_commit.h"

#include <bitset>
#include <cstring>

#include "commit/in_order.h"

namespace ramet::commit {
namespace {

using image::kBlockBytes;

constexpr uint32_t kPages = image::chunk_blocks(image::ImageKind::kMemory);
constexpr uint64_t kChunk = kPages * kBlockBytes;

// One chunk of memory: what is asked, what was found, and room for both versions.
struct ChunkWork {
  uint64_t number = 0, bytes = 0;
  std::bitset<kPages> own;
  Digest before;

  Status status;
  chunk::Prepared now;  // of `plain`
  uint64_t own_pages = 0, changed_pages = 0;
  std::vector<std::byte> plain = std::vector<std::byte>(kChunk), read = std::vector<std::byte>(kChunk);
};

Status load_before(const chunk::Store& store, ChunkWork& work) {
  const std::span<std::byte> plain = std::span(work.plain).first(work.bytes);
  if (work.before == image::kZeros) {
    std::ranges::fill(plain, std::byte{0});
    work.now = chunk::prepared_zeros(plain);
    return {};
  }
  TRY_ASSIGN(work.now, store.get_prepared(work.before, [&](size_t bytes) -> Result<std::span<std::byte>> {
    if (bytes == plain.size()) return plain;
    return fail(ErrorKind::kCorrupt, "chunk " + std::to_string(work.number) + " of the image has " + std::to_string(bytes) +
                                         " bytes, not " + std::to_string(plain.size()));
  }));
  return {};
}

// Pages of a run that differ from what was there replace it, and are noted.
void take_over(ChunkWork& work, uint32_t first, uint32_t end, std::vector<uint32_t>& changed) {
  for (uint32_t page = first; page < end; page++) {
    std::byte* const before = work.plain.data() + page * kBlockBytes;
    const std::byte* const now = work.read.data() + page * kBlockBytes;
    if (std::memcmp(before, now, kBlockBytes) == 0) continue;
    std::memcpy(before, now, kBlockBytes);
    changed.push_back(page);
  }
}

Status compare(const MemoryView& memory, const chunk::Store& store, ChunkWork& work) {
  TRY(load_before(store, work));
  std::vector<uint32_t> changed;
  for (uint32_t page = 0; page < kPages; page++) {
    if (!work.own[page]) continue;
    const uint32_t first = page;
    while (page < kPages && work.own[page]) page++;
    const uint64_t offset = first * kBlockBytes;
    TRY(memory.read(work.number * kChunk + offset, std::span(work.read).subspan(offset, (page - first) * kBlockBytes)));
    take_over(work, first, page, changed);
  }
  work.own_pages = work.own.count();
  work.changed_pages = changed.size();
  if (!changed.empty()) chunk::prepare_again(work.now, changed);
  return {};
}

class Commit {
 public:
  Commit(const MemoryView& memory, image::Manifest& manifest, const chunk::Store& store, chunk::Batch& batch,
         const OnProgress& progress)
      : memory_(memory),
        manifest_(manifest),
        batch_(batch),
        progress_(progress),
        work_(threads_beside_this_one(), [&](ChunkWork& work) { work.status = compare(memory, store, work); }) {}

  Status add_run(uint64_t offset, uint64_t length) {
    for (const uint64_t end = offset + length; offset < end; offset += kBlockBytes) {
      if (!collecting_ || collecting_->number != offset / kChunk) TRY(begin_chunk(offset / kChunk));
      collecting_->own.set(offset % kChunk / kBlockBytes);
    }
    return {};
  }

  Result<MemoryCommit> finish() {
    TRY(give_collected());
    while (work_.size() > 0) TRY(settle_oldest());
    TRY(seal_into(batch_, manifest_));
    if (progress_) progress_({memory_.size_bytes(), memory_.size_bytes()});
    return done_;
  }

 private:
  // Enough that nobody waits; what is in memory at a time.
  static size_t most_under_way() { return 2 * (threads_beside_this_one() + 1); }

  Status begin_chunk(uint64_t number) {
    TRY(give_collected());
    while (work_.size() >= most_under_way()) TRY(settle_oldest());
    collecting_ = spare_ ? std::move(spare_) : std::make_unique<ChunkWork>();
    collecting_->number = number;
    collecting_->bytes = std::min(kChunk, memory_.size_bytes() - number * kChunk);
    collecting_->own.reset();
    return {};
  }

  Status give_collected() {
    if (!collecting_) return {};
    TRY_ASSIGN(collecting_->before, manifest_.chunk(collecting_->number));
    work_.give(std::move(collecting_));
    return {};
  }

  Status settle_oldest() {
    std::unique_ptr<ChunkWork> work = work_.take();
    TRY(work->status);
    done_.touched_chunks++;
    done_.own_pages += work->own_pages;
    done_.changed_pages += work->changed_pages;
    if (work->changed_pages > 0) TRY(put(*work));
    if (progress_) progress_({work->number * kChunk + work->bytes, memory_.size_bytes()});
    spare_ = std::move(work);
    return {};
  }

  Status put(const ChunkWork& work) {
    const std::optional<Digest> parent = work.before == image::kZeros ? std::nullopt : std::optional(work.before);
    TRY_ASSIGN(const std::optional<Digest> name, batch_.put(work.now, parent));
    done_.changed_chunks++;
    return manifest_.set(work.number, name.value_or(image::kZeros));
  }

  const MemoryView& memory_;
  image::Manifest& manifest_;
  chunk::Batch& batch_;
  const OnProgress& progress_;
  MemoryCommit done_;
  std::unique_ptr<ChunkWork> collecting_, spare_;
  InOrder<ChunkWork> work_;  // last: its threads end before the rest
};

Status check_shape(const MemoryView& memory, const image::Manifest& manifest) {
  if (manifest.root().kind != image::ImageKind::kMemory) return fail(ErrorKind::kInvalid, "the image under memory is a disk");
  if (manifest.root().blocks * kBlockBytes == memory.size_bytes()) return {};
  return fail(ErrorKind::kInvalid, "memory of " + std::to_string(memory.size_bytes()) + " bytes over an image of " +
                                       std::to_string(manifest.root().blocks * kBlockBytes));
}

}  // namespace

Result<MemoryCommit> commit_memory(const MemoryView& memory, image::Manifest& manifest, const chunk::Store& store,
                                   chunk::Batch& batch, const OnProgress& progress) {
  TRY(check_shape(memory, manifest));
  Commit commit(memory, manifest, store, batch, progress);
  TRY(memory.visit_own([&](uint64_t offset, uint64_t length) { return commit.add_run(offset, length); }));
  return commit.finish();
}

}  // namespace ramet::commit
