// chunk/testing/recorded_disk.h - everything that is written below one directory, as it happens; and what a loss of power would
// have left of it. Stands below DirectoryStorage (the linker wraps its system calls, see CMakeLists.txt) and below SQLite (a
// VFS around the usual one), so what runs is the real code. Can also be full. Only what was synced is sure: of a file up to its
// last sync, of names (made, renamed, removed) up to the last sync of their directory. Of the rest anything may be there or
// not, block by block. One at a time. Thread: one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace ramet::chunk::testing {

class RecordedDisk {
 public:
  // Records from now on. Requires: the directory is empty but for directories.
  explicit RecordedDisk(std::string directory);
  ~RecordedDisk();
  RecordedDisk(const RecordedDisk&) = delete;
  RecordedDisk& operator=(const RecordedDisk&) = delete;

  size_t steps() const { return events_.size(); }
  enum class Unsynced { kIsLost, kIsThere, kIsThereInPart };
  // Into another directory: what is there when power fails after so many steps. `seed`: which part.
  void leave(size_t steps, Unsynced unsynced, uint64_t seed, const std::string& directory) const;

  // The write with this number, and all after it, find the disk full; the first of them fits by half.
  void be_full_from_write(uint64_t number) { full_from_ = number; }
  void have_room() { full_from_.reset(); }
  uint64_t writes() const { return writes_; }

  // For what stands below the code under test.
  enum class Kind { kCreate, kWrite, kTruncate, kSync, kRename, kRemove, kSyncDirectory };
  struct Event {
    Kind kind;
    std::string path, to;  // without the directory
    uint64_t offset = 0;   // or the length
    std::string bytes;
  };
  // The recording one, if the path lies below its directory; null otherwise.
  static RecordedDisk* of(std::string_view path);
  void note(Kind kind, std::string_view path, std::string_view to = {}, uint64_t offset = 0, std::string bytes = {});
  // How much of a write of so many bytes there is room for.
  size_t room_for(size_t bytes);

 private:
  std::string inside(std::string_view path) const;

  const std::string directory_;
  std::vector<Event> events_;
  uint64_t writes_ = 0;
  std::optional<uint64_t> full_from_;
};

}  // namespace ramet::chunk::testing
