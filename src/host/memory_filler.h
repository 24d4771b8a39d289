// host/memory_filler.h - the memory of a snapshot comes to the machines that run on it while they run.
//
//   machine touches a page ─► fault ─► thread of that machine ─► chunk from the store into the memory files ─► it looks again
//   meanwhile one thread fetches the rest: what was touched first in an earlier run, then all else
//   all there ─► files sealed ─► complete: nothing waits any more, the image may be shared
//
// A machine's monitor is hostile: what it says its addresses are changes only which chunk of its own image is fetched next, and
// one that blocks its thread has no other to block. Merely touching a hole of the files through a mapping that nobody watches
// makes a page of zeros there, which the true bytes replace later; so an image that is not complete belongs to one *family*
// of machines (claim()), and whoever else wants it waits until it is. When we die, those that wait go on waiting: each monitor
// holds a duplicate of its descriptor, which the next daemon asks for, with files that it opens anew (open_memory_files()).
// What cannot be fetched is tried again: a guest stands still, and is never fed zeros.
// Owner: shared by the image (zygotes.h) and the machines; the last one ends it. Thread: any.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "commit/demand_fill.h"
#include "host/types.h"

namespace ramet::host {

// The two files of an image, open for writing; mode 0400, named after the image.
struct MemoryFilePair {
  UniqueFd even, odd;
};
Result<MemoryFilePair> make_memory_files(const std::string& image, uint64_t ram_bytes);
// Those of that image that a process has mapped.   Errors: kNotFound, kIo.
Result<MemoryFilePair> open_memory_files(pid_t pid, const std::string& image);
// Nobody can change them any more.   Requires: nothing is missing.
Status seal_memory_files(const MemoryFilePair& files);
// Nothing is missing in them.
bool is_complete(const MemoryFilePair& files);

class MemoryFiller : public std::enable_shared_from_this<MemoryFiller> {
 public:
  struct Content {
    std::string image;  // for messages
    MemoryFilePair files;
    std::unique_ptr<commit::DemandFill> fill;  // of these files
    std::shared_ptr<const void> hold;          // keeps what it reads
  };
  // `mode`: not kWhole.
  static std::shared_ptr<MemoryFiller> start(Content content, MemoryFill mode);
  ~MemoryFiller();

  bool complete() const;
  // Errors: kTimeout.
  Status wait_complete(Deadline deadline);
  // False: it is not complete, and another family's.
  bool claim(const std::string& family);
  // Why the last chunk that was wanted did not come; nullopt: it did.
  std::optional<Error> trouble() const;
  // In the order in which they were waited for.
  std::vector<uint32_t> touched() const { return content_.fill->touched(); }
  uint64_t missing_chunks() const { return content_.fill->missing_chunks(); }

  // One machine's faults, answered as long as this lives or anything is missing.
  class Faults {
   public:
    ~Faults();
    MemoryFiller& filler() const { return *filler_; }

   private:
    friend class MemoryFiller;
    Faults(std::shared_ptr<MemoryFiller> filler, UniqueFd userfault, uint64_t ram_address, UniqueFd stop);
    void answer();
    bool answer_one(uint64_t address);
    bool wait_a_moment() const;

    const std::shared_ptr<MemoryFiller> filler_;
    const UniqueFd userfault_;
    const uint64_t ram_address_;
    const UniqueFd stop_;  // an eventfd
    std::thread thread_;
  };
  // `userfault`: as its monitor sent it.   Errors: kCorrupt (it is something else).
  Result<std::unique_ptr<Faults>> serve(UniqueFd userfault, uint64_t ram_address);

 private:
  MemoryFiller(Content content, MemoryFill mode);
  void fill_rest();
  void note_if_complete();
  // Told to people once in a row.
  void note_trouble(const Error& error);
  void note_no_trouble();

  Content content_;  // its files go when it is complete
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool complete_ = false;         // guarded by mutex_
  bool stop_ = false;             // guarded by mutex_
  std::string family_;            // guarded by mutex_; whose it is; empty: nobody's yet
  std::optional<Error> trouble_;  // guarded by mutex_
  std::thread rest_;
};

}  // namespace ramet::host
