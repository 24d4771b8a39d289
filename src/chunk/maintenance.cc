#include "chunk/maintenance.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "base/crc32c.h"
#include "base/file.h"

namespace ramet::chunk {
namespace {

class Verification {
 public:
  explicit Verification(const PackStorage& packs) : packs_(packs) {}

  void look_at(const PackId& id) {
    report.packs++;
    const Result<PackTail> tail = check_pack(id);
    if (!tail) {
      note("pack " + to_hex(id), tail.error());
      return;
    }
    for (const FrameEntry& entry : tail->frames) {
      report.frames++;
      plain_.resize(entry.blocks * kBlockBytes);
      const std::span<const std::byte> stored = std::span(bytes_).subspan(entry.offset, entry.stored_bytes);
      if (const Status good = decoder_.decode(entry, stored, plain_); !good)
        note("frame " + std::to_string(entry.id) + " in pack " + to_hex(id), good.error());
    }
  }
  void note(std::string where, const Error& error) { report.problems.push_back({std::move(where), error}); }

  VerifyReport report;

 private:
  // Reads all of it into bytes_.
  Result<PackTail> check_pack(const PackId& id) {
    TRY_ASSIGN(PackTail tail, read_pack_tail(packs_, id));
    TRY_ASSIGN(const uint64_t size, packs_.size_bytes(id));
    bytes_.resize(size);
    TRY(packs_.read(id, 0, bytes_));
    const std::span<const std::byte> bytes = bytes_;
    TRY_ASSIGN(const PackFooter footer, decode_pack_footer(bytes.last<kPackFooterBytes>(), size));
    if (crc32c(bytes.data(), size - kPackFooterBytes) != footer.body_crc)
      return fail(ErrorKind::kCorrupt, "wrong checksum of the pack");
    return tail;
  }

  const PackStorage& packs_;
  FrameDecoder decoder_;
  std::vector<std::byte> bytes_, plain_;
};

// Packs that the index does not know. Asked in the order in which a commit goes on, so that none escapes between two questions.
Status note_unknown(const Store& store, Verification& verification) {
  TRY_ASSIGN(const std::vector<PackId> there, store.packs().list());
  TRY_ASSIGN(const std::vector<PackId> unfinished, store.index().unfinished_packs());
  TRY_ASSIGN(const std::vector<Index::Pack> packs, store.index().packs());
  std::set<PackId> known(unfinished.begin(), unfinished.end());
  for (const Index::Pack& pack : packs) known.insert(pack.id);
  for (const PackId& id : there)
    if (!known.contains(id) && store.packs().size_bytes(id))  // or a batch took it away meanwhile
      verification.note("pack " + to_hex(id), Error(ErrorKind::kCorrupt, "the index does not know it"));
  return {};
}

// A pack that outlived a collection may still describe chunks that died, or that were moved: by frames that are not there any
// more. First all frames, then the records that can be carried out.
Status build(const PackStorage& packs, const std::string& path, const Store* common, RebuildReport& report) {
  TRY_ASSIGN(const std::unique_ptr<Index> index, Index::open(path));
  TRY_ASSIGN(const std::vector<PackId> ids, packs.list());
  std::vector<Index::AddedPack> found;
  std::unordered_map<FrameId, uint32_t> blocks;
  for (const PackId& id : ids) {
    Result<PackTail> tail = read_pack_tail(packs, id);
    if (!tail) {
      report.left_out.push_back({"pack " + to_hex(id), tail.error()});
      continue;
    }
    tail->prints.clear();
    for (const FrameEntry& frame : tail->frames) blocks[frame.id] = frame.blocks;
    TRY_ASSIGN(const uint64_t bytes, packs.size_bytes(id));
    found.push_back({id, bytes, *std::move(tail)});
  }
  const auto can_be_carried_out = [&](const Recipe& recipe) {
    return std::ranges::all_of(recipe.extents, [&](const Extent& e) {
      if (e.frame && is_common(*e.frame)) return common && common->index().frame(*e.frame & ~kCommonFrame).has_value();
      const auto frame = e.frame ? blocks.find(*e.frame) : blocks.end();
      return !e.frame || (frame != blocks.end() && e.first + e.blocks <= frame->second);
    });
  };
  for (Index::AddedPack& pack : found)
    std::erase_if(pack.tail.chunks, [&](const PackChunk& c) { return !can_be_carried_out(c.recipe); });
  TRY(index->add(found));
  report.packs = found.size();
  return {};
}

void remove_database(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm"}) ::unlink((path + suffix).c_str());
}

}  // namespace

Result<VerifyReport> verify(const Store& store, const std::function<void(const Progress&)>& progress) {
  TRY_ASSIGN(const std::vector<Index::Pack> packs, store.index().packs());
  TRY_ASSIGN(const std::vector<Digest> chunks, store.index().chunks());
  Verification verification(store.packs());
  if (const Status whole = store.index().check(); !whole) verification.note("index", whole.error());
  TRY(note_unknown(store, verification));
  Progress now{.done = 0, .total = packs.size() + chunks.size()};
  const auto step = [&] {
    now.done++;
    if (progress) progress(now);
  };
  for (const Index::Pack& pack : packs) {
    verification.look_at(pack.id);
    step();
  }
  for (const Digest& digest : chunks) {
    verification.report.chunks++;
    if (const Result<std::vector<std::byte>> got = store.get(digest); !got)
      verification.note("chunk " + digest.to_hex(), got.error());
    step();
  }
  return std::move(verification.report);
}

Result<RebuildReport> rebuild_index(const PackStorage& packs, const std::string& index_path, const Store* common) {
  const std::string unfinished = index_path + ".unfinished";
  remove_database(unfinished);
  RebuildReport report;
  const Status built = build(packs, unfinished, common, report);
  if (!built) {
    remove_database(unfinished);
    return tl::unexpected<Error>(built.error());
  }
  // Closed, so SQLite has brought everything into the one file. The old one's log must not be taken for the new one's.
  for (const char* suffix : {"-wal", "-shm"}) ::unlink((index_path + suffix).c_str());
  if (::rename(unfinished.c_str(), index_path.c_str()) < 0) return fail_errno("name the new index " + index_path);
  TRY(sync_directory(std::filesystem::path(index_path).parent_path()));
  return report;
}

}  // namespace ramet::chunk
