#include "base/sqlite.h"

#include <fcntl.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <unordered_map>
#include <vector>

#include "base/file.h"

namespace ramet {

class SqlConnection {
 public:
  using Idle = std::vector<sqlite3_stmt*>;  // of one text, reset, nothing bound; several where several were in use at once

  explicit SqlConnection(sqlite3* db) : db_(db) {}
  SqlConnection(const SqlConnection&) = delete;
  SqlConnection& operator=(const SqlConnection&) = delete;
  ~SqlConnection() {
    for (const auto& [text, statements] : idle_)
      for (sqlite3_stmt* const s : statements) sqlite3_finalize(s);
    sqlite3_close_v2(db_);
  }
  sqlite3* get() const { return db_; }
  Idle& idle(std::string_view text) {
    const auto found = idle_.find(text);
    return found != idle_.end() ? found->second : idle_[std::string(text)];
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  sqlite3* const db_;
  std::unordered_map<std::string, Idle, Hash, std::equal_to<>> idle_;
};

namespace {

// SQLite has a code of its own for a full disk only where it writes; elsewhere the system's error says it.
// Not where it syncs: nobody knows then whether what it wrote will be there.
bool is_full(sqlite3* db) {
  if (!db || sqlite3_extended_errcode(db) == SQLITE_IOERR_FSYNC) return false;
  const int err = sqlite3_system_errno(db);
  return err == ENOSPC || err == EDQUOT;
}

ErrorKind kind_of_sqlite(sqlite3* db, int code) {
  switch (code & 0xff) {
    case SQLITE_FULL: return ErrorKind::kNoSpace;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return ErrorKind::kCorrupt;
    case SQLITE_CONSTRAINT:
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return ErrorKind::kConflict;
    case SQLITE_CANTOPEN: return is_full(db) ? ErrorKind::kNoSpace : ErrorKind::kPermission;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH: return ErrorKind::kPermission;
    case SQLITE_NOMEM: return ErrorKind::kNoMemory;
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
    case SQLITE_ERROR: return ErrorKind::kInternal;
    default: return is_full(db) ? ErrorKind::kNoSpace : ErrorKind::kIo;
  }
}

tl::unexpected<Error> sql_fail(sqlite3* db, int code, std::string_view what) {
  const ErrorKind kind = kind_of_sqlite(db, code);
  const char* const why = kind == ErrorKind::kNoSpace ? sqlite3_errstr(SQLITE_FULL)
                          : db                        ? sqlite3_errmsg(db)
                                                      : sqlite3_errstr(code);
  const char* const file = db ? sqlite3_db_filename(db, "main") : nullptr;
  return fail(kind, "database " + std::string(file ? file : "") + ": " + std::string(what) + ": " + why);
}

// SQLite empties the log into the database every 1,000 pages (4 MiB); half of that more, for when the database cannot grow.
constexpr uint64_t kLogReserveBytes = 6u << 20;

}  // namespace

void SqlStatement::GiveBack::operator()(sqlite3_stmt* s) const {
  sqlite3_reset(s);
  sqlite3_clear_bindings(s);
  idle->push_back(s);
}

SqlStatement& SqlStatement::bind(std::string_view text) {
  const int rc = sqlite3_bind_text(stmt_.get(), next_++, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  if (rc != SQLITE_OK) bind_error_ = rc;
  return *this;
}
SqlStatement& SqlStatement::bind(int64_t number) {
  const int rc = sqlite3_bind_int64(stmt_.get(), next_++, number);
  if (rc != SQLITE_OK) bind_error_ = rc;
  return *this;
}
SqlStatement& SqlStatement::bind(std::optional<int64_t> number) {
  if (number) return bind(*number);
  const int rc = sqlite3_bind_null(stmt_.get(), next_++);
  if (rc != SQLITE_OK) bind_error_ = rc;
  return *this;
}
SqlStatement& SqlStatement::bind(const std::optional<std::string>& text) {
  if (text) return bind(std::string_view(*text));
  return bind(std::optional<int64_t>{});
}
SqlStatement& SqlStatement::bind(double number) {
  const int rc = sqlite3_bind_double(stmt_.get(), next_++, number);
  if (rc != SQLITE_OK) bind_error_ = rc;
  return *this;
}

SqlStatement& SqlStatement::bind(std::span<const std::byte> blob) {
  // Never a null pointer, which SQLite takes for NULL.
  const int rc = sqlite3_bind_blob(stmt_.get(), next_++, blob.empty() ? "" : static_cast<const void*>(blob.data()),
                                   static_cast<int>(blob.size()), SQLITE_TRANSIENT);
  if (rc != SQLITE_OK) bind_error_ = rc;
  return *this;
}
SqlStatement& SqlStatement::reset() {
  sqlite3_reset(stmt_.get());
  sqlite3_clear_bindings(stmt_.get());
  next_ = 1;
  bind_error_ = 0;
  return *this;
}

Result<bool> SqlStatement::step() {
  sqlite3* db = sqlite3_db_handle(stmt_.get());
  if (bind_error_ != 0) return sql_fail(db, bind_error_, "bind");
  const int rc = sqlite3_step(stmt_.get());
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  return sql_fail(db, rc, "step");
}

Status SqlStatement::run() {
  TRY_ASSIGN(const bool row, step());
  (void)row;
  return {};
}

int64_t SqlStatement::int_at(int c) const { return sqlite3_column_int64(stmt_.get(), c); }
double SqlStatement::double_at(int c) const { return sqlite3_column_double(stmt_.get(), c); }
std::string SqlStatement::text_at(int c) const {
  const unsigned char* t = sqlite3_column_text(stmt_.get(), c);
  if (!t) return {};
  return {reinterpret_cast<const char*>(t), static_cast<size_t>(sqlite3_column_bytes(stmt_.get(), c))};
}
std::span<const std::byte> SqlStatement::blob_at(int c) const {
  const void* const p = sqlite3_column_blob(stmt_.get(), c);
  return {static_cast<const std::byte*>(p), p ? static_cast<size_t>(sqlite3_column_bytes(stmt_.get(), c)) : 0};
}
std::optional<int64_t> SqlStatement::maybe_int_at(int c) const {
  if (sqlite3_column_type(stmt_.get(), c) == SQLITE_NULL) return std::nullopt;
  return int_at(c);
}
std::optional<std::string> SqlStatement::maybe_text_at(int c) const {
  if (sqlite3_column_type(stmt_.get(), c) == SQLITE_NULL) return std::nullopt;
  return text_at(c);
}

Result<SqlDatabase> SqlDatabase::open_with(const std::string& path, int flags) {
  sqlite3* raw = nullptr;
  const int rc = sqlite3_open_v2(path.c_str(), &raw, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  SqlDatabase db(std::make_shared<SqlConnection>(raw));
  if (rc != SQLITE_OK) return sql_fail(raw, rc, "open " + path);
  sqlite3_busy_timeout(raw, 5000);
  return db;
}

Result<SqlDatabase> SqlDatabase::open_to_read(const std::string& path) { return open_with(path, SQLITE_OPEN_READONLY); }

Result<SqlDatabase> SqlDatabase::open(const std::string& path, Durability durability) {
  TRY_ASSIGN(SqlDatabase db, open_with(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  TRY(db.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;"));
  if (durability == Durability::kPower) TRY(db.exec("PRAGMA synchronous=FULL;"));
  return db;
}

Result<SqlStatement> SqlDatabase::prepare(std::string_view sql) {
  SqlConnection::Idle& idle = connection_->idle(sql);
  if (!idle.empty()) {
    sqlite3_stmt* const s = idle.back();
    idle.pop_back();
    return SqlStatement(s, {connection_, &idle});
  }
  sqlite3* const db = connection_->get();
  sqlite3_stmt* s = nullptr;
  const int rc = sqlite3_prepare_v3(db, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &s, nullptr);
  if (rc != SQLITE_OK) return sql_fail(db, rc, "prepare");
  return SqlStatement(s, {connection_, &idle});
}

// Past the end of the file: SQLite does not see it, and takes it back only with the file, at the last close. What fails leaves
// things as they are. The database itself must not be opened here: closing it would end SQLite's locks.
void SqlDatabase::set_space_aside() {
  const Result<UniqueFd> log =
      open_file(std::string(sqlite3_db_filename(connection_->get(), "main")) + "-wal", O_RDWR | O_NOFOLLOW);
  struct statvfs v;
  if (!log || ::fstatvfs(log->get(), &v) < 0) return;
  if (static_cast<uint64_t>(v.f_bavail) * v.f_frsize < 2 * kLogReserveBytes) return;
  static_cast<void>(::fallocate(log->get(), FALLOC_FL_KEEP_SIZE, 0, kLogReserveBytes));
}

Status SqlDatabase::exec(const char* sql) {
  const int rc = sqlite3_exec(connection_->get(), sql, nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK) return sql_fail(connection_->get(), rc, "exec");
  return {};
}

int SqlDatabase::changes() const { return sqlite3_changes(connection_->get()); }

Result<SqlTransaction> SqlTransaction::begin(SqlDatabase& db) {
  TRY(db.exec("BEGIN IMMEDIATE"));
  return SqlTransaction(&db);
}

SqlTransaction::~SqlTransaction() {
  if (db_) (void)db_->exec("ROLLBACK");
}

Status SqlTransaction::commit() {
  TRY(db_->exec("COMMIT"));
  db_ = nullptr;
  return {};
}

}  // namespace ramet
