// vmm/memory/guest_ram.h - the owner of guest RAM: how it is mapped, captured into an image, dropped, and rebased.
//
// Two kinds. *Booted* RAM is one anonymous range of 4 KiB pages. *Image* RAM maps two memory files privately, 16 MiB segments
// taken from them in turn so that neighbours cannot merge (fork(2) copies page tables per mapping, and skips clean ones); what
// was zero in the image is anonymous and may use huge pages. Both kinds are copy-on-write for fork(2) and nothing else. Not
// here: guest addresses (guest_memory.h), KVM slots. Thread: one at a time, with vCPUs parked; drop() from any. Owner: the
// machine; a forked child inherits the object and goes on using it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mapped_region.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "image/memory_layout.h"
#include "vmm/memory/guest_memory.h"

namespace ramet::vmm {

class PageMap;

class GuestRam {
 public:
  // Errors: kInvalid (not a multiple of 2 MiB, or zero), kNoMemory.
  static Result<std::unique_ptr<GuestRam>> boot(uint64_t ram_bytes);
  // Errors: kCorrupt (a file is shorter than RAM), kNoMemory.
  static Result<std::unique_ptr<GuestRam>> map_image(const image::ZeroMap& zeros, UniqueFd even, UniqueFd odd);

  const GuestMemory& memory() const { return memory_; }
  std::byte* base() const { return memory_.host_base(); }
  uint64_t size_bytes() const { return memory_.size_bytes(); }
  bool from_image() const { return even_.valid(); }
  uint64_t mapping_count() const { return zeros_.mapping_count(); }
  const image::ZeroMap& zeros() const { return zeros_; }

  // Gives unused pages back. Parts that show the image stay: dropping a written page there would bring the image's bytes back.
  // Requires: page-aligned.   False: not RAM.
  bool drop(GuestAddr address, uint64_t length) const;

  struct Captured {
    image::ZeroMap zeros;
    uint64_t stored_bytes;
  };
  // Writes RAM into two empty files of RAM's size and says what was left out.   Requires: vCPUs parked.   Errors: kNoSpace,
  // kIo.
  Result<Captured> capture(int even, int odd) const;

  // Copies every private page into fresh mappings of the same image, which cuts the chain to the ancestors' memory that slows
  // fork(2) with every generation (docs/decisions/0003). Costs a copy of what was written.   Requires: single-threaded, no VM.
  Status rebase();

  // Whoever touches a page that the image's files do not hold waits for it, as base/userfault.h says.   Requires: an image.
  Status watch_faults(int userfault) const;
  // Nothing is missing in the files any more, and nobody can change them.
  bool files_complete() const;

  // Descriptors a forked child must keep: they are mapped again by rebase().
  std::vector<int> descriptors() const;
  // True when no page of RAM belongs to this process alone: what a zygote must always be.
  Result<bool> is_untouched() const;

 private:
  GuestRam(MappedRegion region, std::byte* base, image::ZeroMap zeros, UniqueFd even, UniqueFd odd)
      : region_(std::move(region)),
        memory_(base, zeros.ram_bytes()),
        zeros_(std::move(zeros)),
        even_(std::move(even)),
        odd_(std::move(odd)) {}
  Status map_piece(const image::RamPiece& piece, std::byte* at) const;
  Status rebase_piece(const image::RamPiece& piece, const PageMap& pages) const;
  std::span<std::byte> bytes_of(const image::RamPiece& piece) const { return {base() + piece.offset, piece.length}; }

  MappedRegion region_;  // the reserved range; memory_ lies in it, aligned
  GuestMemory memory_;
  image::ZeroMap zeros_;  // blocks that are anonymous; all of them for booted RAM
  UniqueFd even_, odd_;   // read-only image files; absent for booted RAM
};

}  // namespace ramet::vmm
