#include "chunk/maintenance.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "base/file.h"
#include "chunk/inspection.h"

namespace ramet::chunk {
namespace {

// Packs that the index does not know. A pack is unfinished, then known, then, when it was collected, unfinished again until its
// file is gone: asked in this order none escapes between two questions.
Status note_unknown(const Store& store, Inspection& inspection) {
  TRY_ASSIGN(const std::vector<PackId> there, store.packs().list());
  TRY_ASSIGN(const std::vector<PackId> unfinished, store.index().unfinished_packs());
  TRY_ASSIGN(const std::vector<Index::Pack> packs, store.index().packs());
  TRY_ASSIGN(const std::vector<PackId> collected, store.index().unfinished_packs());
  std::set<PackId> known(unfinished.begin(), unfinished.end());
  known.insert(collected.begin(), collected.end());
  for (const Index::Pack& pack : packs) known.insert(pack.id);
  for (const PackId& id : there)
    if (!known.contains(id) && store.packs().size_bytes(id))  // or it was taken away meanwhile
      inspection.note("pack " + to_hex(id), Error(ErrorKind::kCorrupt, "the index does not know it"));
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
  Inspection inspection(store);
  if (const Status whole = store.index().check(); !whole) inspection.note("index", whole.error());
  TRY(note_unknown(store, inspection));
  Progress now{.done = 0, .total = packs.size() + chunks.size()};
  const auto step = [&] {
    now.done++;
    if (progress) progress(now);
  };
  for (const Index::Pack& pack : packs) {
    inspection.look_at(pack.id);
    step();
  }
  for (const Digest& digest : chunks) {
    inspection.look_at(digest);
    step();
  }
  return std::move(inspection.report);
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
