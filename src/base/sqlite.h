// base/sqlite.h - a small owner of one SQLite connection and its statements; errors become Result. A statement that is done
// with is kept for who prepares the same text next: to compile one takes longer than to run most of ours.
// Not here: tables. A resource. Thread: the owner locks; one connection and its statements are one thread's at a time.
#pragma once

#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace ramet {

class SqlConnection;

// One prepared statement. bind() in the order of the question marks, then step() until it says false.
class SqlStatement {
 public:
  SqlStatement(SqlStatement&&) noexcept = default;
  SqlStatement& operator=(SqlStatement&&) noexcept = default;
  ~SqlStatement() = default;

  SqlStatement& bind(std::string_view text);
  SqlStatement& bind(int64_t number);
  SqlStatement& bind(std::optional<int64_t> number);
  SqlStatement& bind(const std::optional<std::string>& text);
  SqlStatement& bind(double number);
  SqlStatement& bind(std::span<const std::byte> blob);
  // For the same statement once more: forgets what was bound and where it was.
  SqlStatement& reset();

  // True: a row is there.   Errors: kNoSpace (disk full), kCorrupt, kIo, kConflict (constraint).
  Result<bool> step();
  // Calls `row` for each row that is left; it may answer a Status, whose first error ends it.
  template <class F>
  Status each(F&& row) {
    for (;;) {
      TRY_ASSIGN(const bool there, step());
      if (!there) return {};
      if constexpr (std::is_void_v<decltype(row())>)
        row();
      else
        TRY(row());
    }
  }
  // For statements without rows.
  Status run();

  int64_t int_at(int column) const;
  double double_at(int column) const;
  std::string text_at(int column) const;
  // Valid until the next step() or reset().
  std::span<const std::byte> blob_at(int column) const;
  std::optional<int64_t> maybe_int_at(int column) const;
  std::optional<std::string> maybe_text_at(int column) const;

 private:
  friend class SqlDatabase;
  struct GiveBack {
    std::shared_ptr<SqlConnection> connection;
    std::vector<sqlite3_stmt*>* idle;  // of the connection: those of the same text
    void operator()(sqlite3_stmt* s) const;
  };
  SqlStatement(sqlite3_stmt* s, GiveBack give_back) : stmt_(s, std::move(give_back)) {}
  std::unique_ptr<sqlite3_stmt, GiveBack> stmt_;
  int next_ = 1;
  int bind_error_ = 0;
};

class SqlDatabase {
 public:
  enum class Durability {
    kProcess,  // a commit survives the death of the process; after a loss of power the last ones may be gone
    kPower,    // a loss of power, too
  };
  // WAL; consistent after either.
  static Result<SqlDatabase> open(const std::string& path, Durability durability = Durability::kProcess);
  // One that is there, also while others write to it: they do not wait for whoever reads.
  static Result<SqlDatabase> open_to_read(const std::string& path);

  // Texts are the program's own, so that there are few of them: what is bound to one is no part of it.
  Result<SqlStatement> prepare(std::string_view sql);
  Status exec(const char* sql);
  // Sets disk space aside for the log while the database is open, where there is some to spare: on a disk that became full
  // something can still be written, above all that something is deleted.
  void set_space_aside();
  int changes() const;

 private:
  static Result<SqlDatabase> open_with(const std::string& path, int flags);
  explicit SqlDatabase(std::shared_ptr<SqlConnection> connection) : connection_(std::move(connection)) {}
  std::shared_ptr<SqlConnection> connection_;  // its statements' as well
};

// BEGIN IMMEDIATE now; ROLLBACK in the destructor unless commit() succeeded.
class SqlTransaction {
 public:
  static Result<SqlTransaction> begin(SqlDatabase& db);
  SqlTransaction(SqlTransaction&& o) noexcept : db_(std::exchange(o.db_, nullptr)) {}
  ~SqlTransaction();
  Status commit();

 private:
  explicit SqlTransaction(SqlDatabase* db) : db_(db) {}
  SqlDatabase* db_;
};

}  // namespace ramet
