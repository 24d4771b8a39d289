// host/images/testing/counted_statements.h - how often SQLite began a statement in each database that is opened while this
// lives: the work that looking something up takes, whatever the clock says. Thread: count() from any. One at a time.
#pragma once

#include <sqlite3.h>

#include <map>
#include <mutex>
#include <string>

namespace ramet::host::testing {

class CountedStatements {
 public:
  CountedStatements() { sqlite3_auto_extension(entry()); }
  ~CountedStatements() { sqlite3_cancel_auto_extension(entry()); }
  CountedStatements(const CountedStatements&) = delete;
  CountedStatements& operator=(const CountedStatements&) = delete;

  static uint64_t count(const std::string& database) {
    const std::lock_guard lock(counts().mutex);
    return counts().of[database];
  }

 private:
  struct Counts {
    std::mutex mutex;
    std::map<std::string, uint64_t> of;  // guarded by mutex
  };
  // SQLite's hooks are of the process, too.
  static Counts& counts() {
    static Counts all;
    return all;
  }
  // Safety: SQLite's own type for an entry point; it calls it with the arguments of watch().
  static void (*entry())() { return reinterpret_cast<void (*)()>(&watch); }
  static int watch(sqlite3* db, const char**, const sqlite3_api_routines*) {
    return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, &note, db);
  }
  static int note(unsigned, void* db, void*, void*) {
    const char* const path = sqlite3_db_filename(static_cast<sqlite3*>(db), "main");
    const std::lock_guard lock(counts().mutex);
    counts().of[path ? path : ""]++;
    return 0;
  }
};

}  // namespace ramet::host::testing
