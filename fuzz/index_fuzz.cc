// The rows of an index that somebody else wrote: any values, any types, with checksums that are right or not. Whatever is in
// the tables, everything that reads them ends with an error or with values within the limits; what looks whole can be read
// through and through; and what is added to it is there, or refused.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/sqlite.h"
#include "chunk/index.h"
#include "chunk/row_sum.h"
#include "input.h"

namespace {

using namespace ramet;
using namespace ramet::chunk;

void check(bool good) {
  if (!good) abort();
}

// A file of this process, in memory where there is such a place; its tables are made once.
struct Place {
  Place() {
    std::filesystem::create_directories(directory);
    check(Index::open(path).has_value());
  }
  ~Place() { std::filesystem::remove_all(directory); }
  const std::string directory = (std::filesystem::exists("/dev/shm") ? std::string("/dev/shm") : std::string("/tmp")) +
                                "/ramet-index-fuzz-" + std::to_string(::getpid());
  const std::string path = directory + "/index.db";
};

template <size_t N>
std::array<std::byte, N> few(FuzzInput& in) {
  std::array<std::byte, N> out{};
  out[0] = std::byte{in.number<uint8_t>()};
  return out;
}

// Mostly small, so that rows of different tables meet.
int64_t number(FuzzInput& in) { return in.rarely(6) ? in.number<int64_t>() : in.upto(12); }
int64_t sum(FuzzInput& in, int64_t right) { return in.rarely(10) ? in.number<int64_t>() : right; }

void add_pack(FuzzInput& in, SqlDatabase& db) {
  const PackId id = few<std::tuple_size_v<PackId>>(in);
  const int64_t key = number(in), bytes = number(in);
  SqlStatement row = *db.prepare("INSERT OR REPLACE INTO packs VALUES (?, ?, ?, ?)");
  static_cast<void>(row.bind(key).bind(id).bind(bytes).bind(sum(in, sum_of_pack(key, id, bytes))).run());
}

void add_frame(FuzzInput& in, SqlDatabase& db) {
  const int64_t id = number(in), pack = number(in), start = number(in), stored = number(in), blocks = number(in),
                codec = number(in);
  FrameEntry e;
  e.id = static_cast<FrameId>(id);
  e.offset = static_cast<uint32_t>(start);
  e.stored_bytes = static_cast<uint32_t>(stored);
  e.blocks = static_cast<uint32_t>(blocks);
  e.codec = static_cast<FrameCodec>(codec & 1);
  e.digest.bytes = few<sizeof(Digest)>(in);
  SqlStatement row = *db.prepare("INSERT OR REPLACE INTO frames VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  row.bind(id).bind(pack).bind(start).bind(stored).bind(blocks).bind(codec).bind(e.digest.bytes);
  static_cast<void>(row.bind(sum(in, sum_of_frame(e, pack))).run());
}

void add_chunk(FuzzInput& in, SqlDatabase& db) {
  const std::array<std::byte, sizeof(Digest)> digest = few<sizeof(Digest)>(in);
  const std::string text = in.bytes(300);
  const std::span<const std::byte> recipe = as_bytes(text);
  const int64_t pack = number(in);
  SqlStatement row = *db.prepare("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?)");
  row.bind(std::span<const std::byte>(digest)).bind(recipe).bind(pack);
  static_cast<void>(row.bind(sum(in, sum_of_chunk(digest, recipe, pack))).run());
}

void add_unfinished(FuzzInput& in, SqlDatabase& db) {
  const PackId id = few<std::tuple_size_v<PackId>>(in);
  SqlStatement row = *db.prepare("INSERT OR REPLACE INTO unfinished VALUES (?, ?)");
  static_cast<void>(row.bind(id).bind(sum(in, sum_of_unfinished(id))).run());
}

void add_next_frame(FuzzInput& in, SqlDatabase& db) {
  const int64_t next = in.rarely(3) ? INT64_MAX - in.upto(40) : number(in);
  SqlStatement row = *db.prepare("INSERT OR REPLACE INTO meta VALUES ('next_frame', ?, ?)");
  static_cast<void>(row.bind(next).bind(sum(in, sum_of_meta("next_frame", next))).run());
}

// Blobs of another length, texts and numbers where blobs are meant.
void spoil(FuzzInput& in, SqlDatabase& db) {
  constexpr const char* kSpoilt[] = {"UPDATE packs SET id = 'text'",           "UPDATE packs SET bytes = x'00'",
                                     "UPDATE frames SET digest = 7",           "UPDATE frames SET start = 'far'",
                                     "UPDATE chunks SET recipe = 'text'",      "UPDATE chunks SET digest = x'0102'",
                                     "UPDATE unfinished SET id = x'01'",       "UPDATE meta SET value = 'text'",
                                     "DELETE FROM meta WHERE key = 'version'", "UPDATE frames SET sum = NULL"};
  static_cast<void>(db.exec(kSpoilt[in.upto(std::size(kSpoilt) - 1)]));
}

void write_rows(FuzzInput& in, const std::string& path) {
  SqlDatabase db = *SqlDatabase::open(path);
  // Who writes rows by hand cares for no references.
  check(db.exec("PRAGMA foreign_keys = OFF").has_value());
  check(db.exec("DELETE FROM frames; DELETE FROM chunks; DELETE FROM packs; DELETE FROM unfinished; DELETE FROM meta; BEGIN")
            .has_value());
  while (!in.empty()) {
    switch (in.upto(5)) {
      case 0: add_pack(in, db); break;
      case 1: add_frame(in, db); break;
      case 2: add_chunk(in, db); break;
      case 3: add_unfinished(in, db); break;
      case 4: add_next_frame(in, db); break;
      default:
        if (in.rarely(4)) spoil(in, db);
    }
  }
  check(db.exec("COMMIT").has_value());
}

void check_place(const FramePlace& place) {
  check(place.entry.offset < kMaxPackBytes && place.entry.stored_bytes > 0 && place.entry.stored_bytes <= kMaxFrameBytes);
  check(place.entry.blocks > 0 && place.entry.blocks <= kFrameBlocks && !is_common(place.entry.id));
}

void check_chunk(const Index::Chunk& chunk) { check(chunk.recipe.blocks() <= kMaxChunkBlocks); }

// Whether it looks whole.
bool read_all(const Index& index) {
  const bool whole = index.check().has_value();
  std::vector<FramePlace> frames;
  check(index.visit_frames([&](const FramePlace& f) { frames.push_back(f); }).has_value() || !whole);
  check(index.visit_chunks(check_chunk).has_value() || !whole);
  check(index.packs().has_value() || !whole);
  check(index.unfinished_packs().has_value() || !whole);
  std::ranges::for_each(frames, check_place);
  for (const FramePlace& f : frames) check(index.frame(f.entry.id).has_value());
  for (FrameId id = 0; id <= 12; id++)
    if (const Result<FramePlace> frame = index.frame(id)) check_place(*frame);
  if (const Result<std::vector<Digest>> chunks = index.chunks())
    for (const Digest& chunk : *chunks)
      if (const Result<Recipe> recipe = index.recipe(chunk)) check(recipe->blocks() <= kMaxChunkBlocks);
  static_cast<void>(index.totals());
  return whole;
}

// A pack of one frame, as a put would add it, and taken away again, as by a collection.
void add_to(Index& index, bool whole) {
  constexpr uint32_t kIds = 64;
  const Result<FrameId> first = index.reserve_frame_ids(kIds);
  if (!first) return;
  check(!is_common(*first) && !is_common(*first + kIds - 1));
  Index::AddedPack pack{.id = {}, .bytes = kPackAlignment, .tail = {}};
  pack.id.fill(std::byte{0xee});
  FrameEntry frame{};
  frame.id = *first;
  frame.offset = kPackHeaderBytes;
  frame.stored_bytes = 100;
  frame.blocks = 1;
  pack.tail.frames.push_back(frame);
  if (!index.begin_pack(pack.id) || !index.add({&pack, 1})) return;
  if (!whole) return;  // it may have rows with these numbers
  const Result<FramePlace> place = index.frame(*first);
  check(place && place->pack == pack.id && place->entry == frame);
  check(index.apply({.dead = {}, .added = {}, .removed = {pack.id}}).has_value());
  check(!index.frame(*first));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Place place;
  FuzzInput in(data, size);
  write_rows(in, place.path);
  const Result<std::unique_ptr<Index>> opened = Index::open(place.path);
  if (!opened) return 0;
  const bool whole = read_all(**opened);
  add_to(**opened, whole);
  return 0;
}
