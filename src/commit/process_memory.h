// commit/process_memory.h - RAM of another process that stands still (a forked child that never runs), read from outside.
//
// Its own are the pages that are anonymous there, present or swapped: a private mapping of an image became anonymous where the
// guest wrote. A page that is not present is the image's and is never touched. The shared zero page looks like one that was
// written; its content tells. The files of /proc are opened once and name the address space: whoever gets the pid later is not
// read. The process is hostile. What it maps at that place is what is read, and whatever else it does ends as an error: no page
// is waited for that it would have to deliver (reads through /proc fail where userfaultfd would ask), and nothing is as long
// as it says.
// Not here: which process that is and whether it may be read: the caller knows it by pidfd. A resource, reads only.
#pragma once

#include <sys/types.h>

#include "base/unique_fd.h"
#include "commit/memory_view.h"

namespace ramet::commit {

class ProcessMemory final : public MemoryView {
 public:
  struct Place {
    pid_t pid = 0;
    int pidfd = -1;  // of that pid; borrowed during open()
    uint64_t address = 0, size_bytes = 0;
  };
  // Errors: kInvalid (not whole pages, or no such addresses), kUnavailable (it has ended), kPermission.
  static Result<ProcessMemory> open(const Place& place);

  uint64_t size_bytes() const override { return size_bytes_; }
  Status visit_own(const Visit& visit) const override;
  Status read(uint64_t offset, std::span<std::byte> out) const override;

 private:
  ProcessMemory(const Place& place, UniqueFd memory, UniqueFd pages)
      : address_(place.address), size_bytes_(place.size_bytes), memory_(std::move(memory)), pages_(std::move(pages)) {}
  uint64_t address_, size_bytes_;
  UniqueFd memory_, pages_;  // /proc/PID/mem, /proc/PID/pagemap
};

}  // namespace ramet::commit
