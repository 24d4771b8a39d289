#include "chunk/index.h"

#include <algorithm>

namespace ramet::chunk {
namespace {

constexpr int64_t kIndexVersion = 2;
// One write for so many frames: 8 GiB of literals.
constexpr FrameId kReservedAtOnce = 65536;

constexpr const char* kTables = R"(
  CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS packs(number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, bytes INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS unfinished(id BLOB PRIMARY KEY) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS frames(id INTEGER PRIMARY KEY, pack INTEGER NOT NULL REFERENCES packs(number), start INTEGER NOT NULL,
    stored INTEGER NOT NULL, blocks INTEGER NOT NULL, codec INTEGER NOT NULL, digest BLOB NOT NULL);
  CREATE INDEX IF NOT EXISTS frames_of_pack ON frames(pack);
  CREATE TABLE IF NOT EXISTS chunks(digest BLOB PRIMARY KEY, recipe BLOB NOT NULL, pack INTEGER NOT NULL) WITHOUT ROWID;
)";

template <size_t N>
bool take(std::span<const std::byte> blob, std::array<std::byte, N>& out) {
  if (blob.size() != N) return false;
  std::copy(blob.begin(), blob.end(), out.begin());
  return true;
}

tl::unexpected<Error> corrupt(const std::string& what) { return fail(ErrorKind::kCorrupt, "index: " + what); }

constexpr const char* kFrameRows =
    "SELECT packs.id, start, stored, blocks, codec, digest, frames.id FROM frames JOIN packs ON packs.number = frames.pack";

Result<FramePlace> frame_of(const SqlStatement& row) {
  const int64_t start = row.int_at(1), stored = row.int_at(2), blocks = row.int_at(3), codec = row.int_at(4);
  FramePlace place;
  place.entry.id = static_cast<FrameId>(row.int_at(6));
  const bool sane = start >= 0 && start < static_cast<int64_t>(kMaxPackBytes) && stored > 0 &&
                    stored <= static_cast<int64_t>(kMaxFrameBytes) && blocks > 0 && blocks <= kFrameBlocks &&
                    (codec == 0 || codec == 1);
  if (!sane || !take(row.blob_at(0), place.pack) || !take(row.blob_at(5), place.entry.digest.bytes))
    return corrupt("the row of frame " + std::to_string(place.entry.id) + " cannot be");
  place.entry.offset = static_cast<uint32_t>(start);
  place.entry.stored_bytes = static_cast<uint32_t>(stored);
  place.entry.blocks = static_cast<uint32_t>(blocks);
  place.entry.codec = static_cast<FrameCodec>(codec);
  return place;
}

}  // namespace

Result<std::unique_ptr<Index>> Index::open(const std::string& path) {
  TRY_ASSIGN(SqlDatabase db, SqlDatabase::open(path, SqlDatabase::Durability::kPower));
  std::unique_ptr<Index> index(new Index(std::move(db)));
  TRY(index->prepare_tables());
  return index;
}

Status Index::prepare_tables() {
  TRY(db_.exec(kTables));
  TRY_ASSIGN(SqlStatement insert, db_.prepare("INSERT OR IGNORE INTO meta VALUES ('version', ?), ('next_frame', 1)"));
  TRY(insert.bind(kIndexVersion).run());
  TRY_ASSIGN(SqlStatement read, db_.prepare("SELECT value FROM meta WHERE key = 'version'"));
  TRY_ASSIGN(const bool there, read.step());
  if (!there || read.int_at(0) < 1) return corrupt("no version");
  if (read.int_at(0) != kIndexVersion)
    return fail(ErrorKind::kUnsupported,
                "index of version " + std::to_string(read.int_at(0)) + ", this program reads " + std::to_string(kIndexVersion));
  return {};
}

Result<FrameId> Index::reserve_frame_ids(uint32_t count) {
  const std::lock_guard lock(mutex_);
  if (reserved_end_ - next_frame_ < count) {
    TRY_ASSIGN(SqlTransaction transaction, SqlTransaction::begin(db_));
    TRY_ASSIGN(SqlStatement read, db_.prepare("SELECT value FROM meta WHERE key = 'next_frame'"));
    TRY_ASSIGN(const bool there, read.step());
    if (!there) return corrupt("no next frame");
    const FrameId next = static_cast<FrameId>(read.int_at(0)), end = next + std::max<FrameId>(kReservedAtOnce, count);
    TRY_ASSIGN(SqlStatement write, db_.prepare("UPDATE meta SET value = ? WHERE key = 'next_frame'"));
    TRY(write.bind(static_cast<int64_t>(end)).run());
    TRY(transaction.commit());
    next_frame_ = next;
    reserved_end_ = end;
  }
  const FrameId first = next_frame_;
  next_frame_ += count;
  return first;
}

Status Index::begin_pack(const PackId& id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement insert, db_.prepare("INSERT INTO unfinished VALUES (?)"));
  return insert.bind(id).run();
}

Status Index::forget_pack(const PackId& id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement remove, db_.prepare("DELETE FROM unfinished WHERE id = ?"));
  return remove.bind(id).run();
}

Result<std::vector<PackId>> Index::unfinished_packs() const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT id FROM unfinished"));
  std::vector<PackId> out;
  TRY(query.each([&]() -> Status {
    if (!take(query.blob_at(0), out.emplace_back())) return corrupt("the name of an unfinished pack cannot be");
    return {};
  }));
  return out;
}

Status Index::add(std::span<const AddedPack> packs) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction transaction, SqlTransaction::begin(db_));
  for (const AddedPack& pack : packs) TRY(insert(pack));
  return transaction.commit();
}

Status Index::apply(const Collection& collection) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlTransaction transaction, SqlTransaction::begin(db_));
  TRY_ASSIGN(SqlStatement dead,
             db_.prepare("DELETE FROM chunks WHERE digest = ? AND pack = (SELECT number FROM packs WHERE id = ?)"));
  for (const Chunk& chunk : collection.dead) TRY(dead.reset().bind(chunk.digest.bytes).bind(chunk.pack).run());
  for (const AddedPack& pack : collection.added) TRY(insert(pack));
  TRY_ASSIGN(SqlStatement frames, db_.prepare("DELETE FROM frames WHERE pack = (SELECT number FROM packs WHERE id = ?)"));
  TRY_ASSIGN(SqlStatement gone, db_.prepare("DELETE FROM packs WHERE id = ?"));
  TRY_ASSIGN(SqlStatement unfinished, db_.prepare("INSERT INTO unfinished VALUES (?)"));
  for (const PackId& id : collection.removed) {
    TRY(frames.reset().bind(id).run());
    TRY(gone.reset().bind(id).run());
    TRY(unfinished.reset().bind(id).run());
  }
  return transaction.commit();
}

Status Index::insert(const AddedPack& pack) {
  TRY_ASSIGN(SqlStatement add_pack, db_.prepare("INSERT INTO packs(id, bytes) VALUES (?, ?)"));
  TRY(add_pack.bind(pack.id).bind(static_cast<int64_t>(pack.bytes)).run());
  TRY_ASSIGN(SqlStatement number_of, db_.prepare("SELECT number FROM packs WHERE id = ?"));
  TRY_ASSIGN(const bool there, number_of.bind(pack.id).step());
  if (!there) return corrupt("a pack that was just added is not there");
  const int64_t number = number_of.int_at(0);
  TRY_ASSIGN(SqlStatement finished, db_.prepare("DELETE FROM unfinished WHERE id = ?"));
  TRY(finished.bind(pack.id).run());

  TRY_ASSIGN(SqlStatement add_frame, db_.prepare("INSERT OR IGNORE INTO frames VALUES (?, ?, ?, ?, ?, ?, ?)"));
  FrameId last = 0;
  for (const FrameEntry& e : pack.tail.frames) {
    add_frame.reset().bind(static_cast<int64_t>(e.id)).bind(number).bind(int64_t{e.offset}).bind(int64_t{e.stored_bytes});
    TRY(add_frame.bind(int64_t{e.blocks}).bind(static_cast<int64_t>(e.codec)).bind(e.digest.bytes).run());
    last = std::max(last, e.id);
  }
  // Only a pack of another index, or one found by rebuilding, can be ahead.
  TRY_ASSIGN(SqlStatement advance, db_.prepare("UPDATE meta SET value = max(value, ?) WHERE key = 'next_frame'"));
  TRY(advance.bind(static_cast<int64_t>(last + 1)).run());

  TRY_ASSIGN(SqlStatement add_chunk, db_.prepare("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?)"));
  for (const PackChunk& chunk : pack.tail.chunks) {
    const std::string recipe = encode_recipe(chunk.recipe);
    TRY(add_chunk.reset().bind(chunk.digest.bytes).bind(std::as_bytes(std::span(recipe))).bind(number).run());
  }
  return {};
}

Result<bool> Index::has_chunk(const Digest& digest) const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT 1 FROM chunks WHERE digest = ?"));
  return query.bind(digest.bytes).step();
}

Result<Recipe> Index::recipe(const Digest& digest) const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT recipe FROM chunks WHERE digest = ?"));
  TRY_ASSIGN(const bool there, query.bind(digest.bytes).step());
  if (!there) return fail(ErrorKind::kNotFound, "no chunk " + digest.to_hex());
  std::optional<Recipe> recipe = decode_recipe(query.blob_at(0));
  if (!recipe) return corrupt("the recipe of chunk " + digest.to_hex() + " cannot be read");
  return *std::move(recipe);
}

Result<FramePlace> Index::frame(FrameId id) const {
  TRY_ASSIGN(const std::vector<FramePlace> places, frames({&id, 1}));
  return places[0];
}

Result<std::vector<FramePlace>> Index::frames(std::span<const FrameId> ids) const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare(std::string(kFrameRows) + " WHERE frames.id = ?"));
  std::vector<FramePlace> out;
  out.reserve(ids.size());
  for (const FrameId id : ids) {
    TRY_ASSIGN(const bool there, query.reset().bind(static_cast<int64_t>(id)).step());
    if (!there) return fail(ErrorKind::kNotFound, "no frame " + std::to_string(id));
    TRY_ASSIGN(const FramePlace place, frame_of(query));
    out.push_back(place);
  }
  return out;
}

Status Index::visit_frames(const std::function<void(const FramePlace&)>& visit) const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare(kFrameRows));
  return query.each([&]() -> Status {
    TRY_ASSIGN(const FramePlace place, frame_of(query));
    visit(place);
    return {};
  });
}

Status Index::visit_chunks(const std::function<void(Chunk)>& visit) const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT digest, recipe, id FROM chunks JOIN packs ON packs.number = chunks.pack"));
  return query.each([&]() -> Status {
    Chunk chunk;
    std::optional<Recipe> recipe = decode_recipe(query.blob_at(1));
    if (!recipe || !take(query.blob_at(0), chunk.digest.bytes) || !take(query.blob_at(2), chunk.pack))
      return corrupt("the row of a chunk cannot be");
    chunk.recipe = *std::move(recipe);
    visit(std::move(chunk));
    return {};
  });
}

Result<std::vector<Index::Pack>> Index::packs() const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT id, bytes FROM packs ORDER BY number"));
  std::vector<Pack> out;
  TRY(query.each([&]() -> Status {
    Pack& pack = out.emplace_back();
    if (!take(query.blob_at(0), pack.id)) return corrupt("the name of a pack cannot be");
    pack.bytes = static_cast<uint64_t>(query.int_at(1));
    return {};
  }));
  return out;
}

Result<std::vector<Digest>> Index::chunks() const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT digest FROM chunks"));
  std::vector<Digest> out;
  TRY(query.each([&]() -> Status {
    if (!take(query.blob_at(0), out.emplace_back().bytes)) return corrupt("the name of a chunk cannot be");
    return {};
  }));
  return out;
}

Result<Index::Totals> Index::totals() const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(
      SqlStatement query,
      db_.prepare(
          "SELECT (SELECT count(*) FROM packs), (SELECT coalesce(sum(bytes), 0) FROM packs), (SELECT count(*) FROM frames), "
          "(SELECT coalesce(sum(stored), 0) FROM frames), (SELECT coalesce(sum(blocks), 0) FROM frames), (SELECT count(*) FROM "
          "chunks)"));
  TRY_ASSIGN(const bool row, query.step());
  (void)row;
  const auto at = [&](int column) { return static_cast<uint64_t>(query.int_at(column)); };
  return Totals{at(0), at(1), at(2), at(3), at(4), at(5)};
}

}  // namespace ramet::chunk
