#include "chunk/index.h"

#include <algorithm>

#include "chunk/row_sum.h"

namespace ramet::chunk {
namespace {

constexpr int64_t kIndexVersion = 3;
// One write for so many frames: 8 GiB of literals.
constexpr FrameId kReservedAtOnce = 65536;
// From there on they are those of a public store.
constexpr FrameId kEndOfFrameIds = kCommonFrame - 1;

// "sum": see row_sum.h.
constexpr const char* kTables = R"(
  CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL, sum INTEGER) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS packs(number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, bytes INTEGER NOT NULL, sum INTEGER);
  CREATE TABLE IF NOT EXISTS unfinished(id BLOB PRIMARY KEY, sum INTEGER) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS frames(id INTEGER PRIMARY KEY, pack INTEGER NOT NULL REFERENCES packs(number), start INTEGER NOT NULL,
    stored INTEGER NOT NULL, blocks INTEGER NOT NULL, codec INTEGER NOT NULL, digest BLOB NOT NULL, sum INTEGER);
  CREATE INDEX IF NOT EXISTS frames_of_pack ON frames(pack);
  CREATE TABLE IF NOT EXISTS chunks(digest BLOB PRIMARY KEY, recipe BLOB NOT NULL, pack INTEGER NOT NULL, sum INTEGER) WITHOUT ROWID;
)";

template <size_t N>
bool take(std::span<const std::byte> blob, std::array<std::byte, N>& out) {
  if (blob.size() != N) return false;
  std::copy(blob.begin(), blob.end(), out.begin());
  return true;
}

tl::unexpected<Error> corrupt(const std::string& what) { return fail(ErrorKind::kCorrupt, "index: " + what); }

constexpr const char* kFrameRows =
    "SELECT packs.id, start, stored, blocks, codec, digest, frames.id, frames.sum, packs.number, packs.bytes, packs.sum "
    "FROM frames JOIN packs ON packs.number = frames.pack";

Result<FramePlace> frame_of(const SqlStatement& row) {
  const int64_t start = row.int_at(1), stored = row.int_at(2), blocks = row.int_at(3), codec = row.int_at(4);
  FramePlace place;
  place.entry.id = static_cast<FrameId>(row.int_at(6));
  const bool sane = !is_common(place.entry.id) && start >= 0 && start < static_cast<int64_t>(kMaxPackBytes) && stored > 0 &&
                    stored <= static_cast<int64_t>(kMaxFrameBytes) && blocks > 0 && blocks <= kFrameBlocks &&
                    (codec == 0 || codec == 1);
  if (!sane || !take(row.blob_at(0), place.pack) || !take(row.blob_at(5), place.entry.digest.bytes))
    return corrupt("the row of frame " + std::to_string(place.entry.id) + " cannot be");
  place.entry.offset = static_cast<uint32_t>(start);
  place.entry.stored_bytes = static_cast<uint32_t>(stored);
  place.entry.blocks = static_cast<uint32_t>(blocks);
  place.entry.codec = static_cast<FrameCodec>(codec);
  if (sum_of_frame(place.entry, row.int_at(8)) != row.int_at(7) ||
      sum_of_pack(row.int_at(8), place.pack, row.int_at(9)) != row.int_at(10))
    return corrupt("the row of frame " + std::to_string(place.entry.id) + " does not have its checksum");
  return place;
}

}  // namespace

Result<std::unique_ptr<Index>> Index::open(const std::string& path) {
  TRY_ASSIGN(SqlDatabase db, SqlDatabase::open(path, SqlDatabase::Durability::kPower));
  std::unique_ptr<Index> index(new Index(std::move(db)));
  TRY(index->prepare_tables());
  return index;
}

Result<std::unique_ptr<Index>> Index::open_to_read(const std::string& path) {
  TRY_ASSIGN(SqlDatabase db, SqlDatabase::open_to_read(path));
  std::unique_ptr<Index> index(new Index(std::move(db)));
  TRY(index->check_version());
  return index;
}

Result<Index::Snapshot> Index::hold_still() const {
  {
    const std::lock_guard lock(mutex_);
    TRY(db_.exec("BEGIN"));
  }
  Snapshot snapshot(this);
  const std::lock_guard lock(mutex_);
  TRY(meta("version"));  // SQLite takes the snapshot at the first look
  return snapshot;
}

Index::Snapshot::~Snapshot() {
  if (!index_) return;
  const std::lock_guard lock(index_->mutex_);
  (void)index_->db_.exec("ROLLBACK");
}

Status Index::prepare_tables() {
  TRY(db_.exec(kTables));
  TRY_ASSIGN(SqlStatement insert, db_.prepare("INSERT OR IGNORE INTO meta VALUES (?, ?, ?)"));
  for (const auto& [key, value] : {std::pair("version", kIndexVersion), {"next_frame", 1}})
    TRY(insert.reset().bind(std::string_view(key)).bind(value).bind(sum_of_meta(key, value)).run());
  return check_version();
}

Status Index::check_version() const {
  TRY_ASSIGN(const int64_t version, meta("version"));
  if (version != kIndexVersion)
    return fail(ErrorKind::kUnsupported,
                "index of version " + std::to_string(version) + ", this program reads " + std::to_string(kIndexVersion));
  return {};
}

Result<int64_t> Index::meta(const char* key) const {
  TRY_ASSIGN(SqlStatement read, db_.prepare("SELECT value, sum FROM meta WHERE key = ?"));
  TRY_ASSIGN(const bool there, read.bind(std::string_view(key)).step());
  if (!there || read.int_at(1) != sum_of_meta(key, read.int_at(0))) return corrupt(std::string("no ") + key);
  return read.int_at(0);
}

Result<FrameId> Index::next_frame() const {
  TRY_ASSIGN(const int64_t value, meta("next_frame"));
  const FrameId next = static_cast<FrameId>(value);
  if (next > kEndOfFrameIds) return corrupt("the number of the next frame cannot be " + std::to_string(value));
  return next;
}

Status Index::set_next_frame(FrameId next) {
  const int64_t value = static_cast<int64_t>(next);
  TRY_ASSIGN(SqlStatement write, db_.prepare("UPDATE meta SET value = ?, sum = ? WHERE key = 'next_frame'"));
  return write.bind(value).bind(sum_of_meta("next_frame", value)).run();
}

Result<FrameId> Index::reserve_frame_ids(uint32_t count) {
  const std::lock_guard lock(mutex_);
  if (reserved_end_ - next_frame_ < count) {
    TRY_ASSIGN(SqlTransaction transaction, SqlTransaction::begin(db_));
    TRY_ASSIGN(next_frame_, next_frame());
    reserved_end_ = next_frame_;  // until it is written down
    const FrameId wanted = std::max<FrameId>(kReservedAtOnce, count);
    if (kEndOfFrameIds - next_frame_ < wanted) return fail(ErrorKind::kNoSpace, "index: the numbers of frames are used up");
    const FrameId end = next_frame_ + wanted;
    TRY(set_next_frame(end));
    TRY(transaction.commit());
    reserved_end_ = end;
  }
  const FrameId first = next_frame_;
  next_frame_ += count;
  return first;
}

Status Index::begin_pack(const PackId& id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement insert, db_.prepare("INSERT INTO unfinished VALUES (?, ?)"));
  return insert.bind(id).bind(sum_of_unfinished(id)).run();
}

Status Index::forget_pack(const PackId& id) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement remove, db_.prepare("DELETE FROM unfinished WHERE id = ?"));
  return remove.bind(id).run();
}

Result<std::vector<PackId>> Index::unfinished_packs() const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT id, sum FROM unfinished"));
  std::vector<PackId> out;
  TRY(query.each([&]() -> Status {
    if (!take(query.blob_at(0), out.emplace_back()) || query.int_at(1) != sum_of_unfinished(out.back()))
      return corrupt("the name of an unfinished pack cannot be");
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
  TRY_ASSIGN(SqlStatement unfinished, db_.prepare("INSERT INTO unfinished VALUES (?, ?)"));
  for (const PackId& id : collection.removed) {
    TRY(frames.reset().bind(id).run());
    TRY(gone.reset().bind(id).run());
    TRY(unfinished.reset().bind(id).bind(sum_of_unfinished(id)).run());
  }
  return transaction.commit();
}

Status Index::insert(const AddedPack& pack) {
  TRY_ASSIGN(SqlStatement last_pack, db_.prepare("SELECT coalesce(max(number), 0) FROM packs"));
  TRY_ASSIGN(const bool there, last_pack.step());
  if (!there || last_pack.int_at(0) == INT64_MAX) return corrupt("no number for a pack");
  const int64_t number = last_pack.int_at(0) + 1, bytes = static_cast<int64_t>(pack.bytes);
  TRY_ASSIGN(SqlStatement add_pack, db_.prepare("INSERT INTO packs VALUES (?, ?, ?, ?)"));
  TRY(add_pack.bind(number).bind(pack.id).bind(bytes).bind(sum_of_pack(number, pack.id, bytes)).run());
  TRY_ASSIGN(SqlStatement finished, db_.prepare("DELETE FROM unfinished WHERE id = ?"));
  TRY(finished.bind(pack.id).run());

  TRY_ASSIGN(SqlStatement add_frame, db_.prepare("INSERT OR IGNORE INTO frames VALUES (?, ?, ?, ?, ?, ?, ?, ?)"));
  FrameId last = 0;
  for (const FrameEntry& e : pack.tail.frames) {
    add_frame.reset().bind(static_cast<int64_t>(e.id)).bind(number).bind(int64_t{e.offset}).bind(int64_t{e.stored_bytes});
    TRY(add_frame.bind(int64_t{e.blocks})
            .bind(static_cast<int64_t>(e.codec))
            .bind(e.digest.bytes)
            .bind(sum_of_frame(e, number))
            .run());
    last = std::max(last, e.id);
  }
  // Only a pack of another index, or one found by rebuilding, can be ahead.
  TRY_ASSIGN(const FrameId next, next_frame());
  if (last >= next) TRY(set_next_frame(std::min(last + 1, kEndOfFrameIds)));

  TRY_ASSIGN(SqlStatement add_chunk, db_.prepare("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?)"));
  for (const PackChunk& chunk : pack.tail.chunks) {
    const std::string text = encode_recipe(chunk.recipe);
    const std::span<const std::byte> recipe = std::as_bytes(std::span(text));
    add_chunk.reset().bind(chunk.digest.bytes).bind(recipe).bind(number);
    TRY(add_chunk.bind(sum_of_chunk(chunk.digest.bytes, recipe, number)).run());
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
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT recipe, pack, sum FROM chunks WHERE digest = ?"));
  TRY_ASSIGN(const bool there, query.bind(digest.bytes).step());
  if (!there) return fail(ErrorKind::kNotFound, "no chunk " + digest.to_hex());
  std::optional<Recipe> recipe = decode_recipe(query.blob_at(0));
  if (!recipe || sum_of_chunk(digest.bytes, query.blob_at(0), query.int_at(1)) != query.int_at(2))
    return corrupt("the recipe of chunk " + digest.to_hex() + " cannot be read");
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
  TRY_ASSIGN(SqlStatement query,
             db_.prepare("SELECT digest, recipe, id, pack, chunks.sum FROM chunks JOIN packs ON packs.number = chunks.pack"));
  return query.each([&]() -> Status {
    Chunk chunk;
    std::optional<Recipe> recipe = decode_recipe(query.blob_at(1));
    if (!recipe || !take(query.blob_at(0), chunk.digest.bytes) || !take(query.blob_at(2), chunk.pack) ||
        sum_of_chunk(chunk.digest.bytes, query.blob_at(1), query.int_at(3)) != query.int_at(4))
      return corrupt("the row of a chunk cannot be");
    chunk.recipe = *std::move(recipe);
    visit(std::move(chunk));
    return {};
  });
}

Result<std::vector<Index::Pack>> Index::packs() const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT id, bytes, number, sum FROM packs ORDER BY number"));
  std::vector<Pack> out;
  TRY(query.each([&]() -> Status {
    Pack& pack = out.emplace_back();
    if (!take(query.blob_at(0), pack.id) || sum_of_pack(query.int_at(2), pack.id, query.int_at(1)) != query.int_at(3))
      return corrupt("the row of a pack cannot be");
    pack.bytes = static_cast<uint64_t>(query.int_at(1));
    return {};
  }));
  return out;
}

Result<bool> Index::has_pack(const PackId& id) const {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT 1 FROM packs WHERE id = ?"));
  return query.bind(id).step();
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

Status Index::check() const {
  TRY(packs());
  TRY(unfinished_packs());
  TRY(visit_chunks([](const Chunk&) {}));
  TRY(visit_frames([](const FramePlace&) {}));
  const std::lock_guard lock(mutex_);
  TRY(check_together());
  TRY_ASSIGN(SqlStatement query, db_.prepare("PRAGMA integrity_check(1)"));
  TRY_ASSIGN(const bool there, query.step());
  if (!there || query.text_at(0) != "ok") return corrupt(there ? query.text_at(0) : "cannot be checked");
  return {};
}

// Rows that are right by themselves, and not together: others were lost.
Status Index::check_together() const {
  TRY_ASSIGN(SqlStatement query, db_.prepare("SELECT (SELECT coalesce(max(id), 0) FROM frames),"
                                             " EXISTS(SELECT 1 FROM frames WHERE pack NOT IN (SELECT number FROM packs)),"
                                             " EXISTS(SELECT 1 FROM chunks WHERE pack NOT IN (SELECT number FROM packs))"));
  TRY_ASSIGN(const bool there, query.step());
  TRY_ASSIGN(const FrameId next, next_frame());
  if (!there || static_cast<FrameId>(query.int_at(0)) >= next) return corrupt("a frame has a number that is still to come");
  if (query.int_at(1) || query.int_at(2)) return corrupt("a frame or a chunk lies in a pack that is not there");
  return {};
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
