// commit/memory_files.h - the RAM of a machine that was captured into two files (image/memory_layout.h), as the monitor does
// it. Whoever wrote the files may be hostile: what is in them is what is read, and a file that is too short is an error.
// Thread: any, reading only. Borrows the descriptors.
#pragma once

#include "commit/memory_view.h"
#include "image/memory_layout.h"

namespace ramet::commit {

class MemoryFiles final : public MemoryView {
 public:
  MemoryFiles(image::ZeroMap zeros, int even, int odd) : zeros_(std::move(zeros)), files_{even, odd} {}

  uint64_t size_bytes() const override { return zeros_.ram_bytes(); }
  // All that is not zero by the map.
  Status visit_own(const Visit& visit) const override;
  Status read(uint64_t offset, std::span<std::byte> out) const override;

 private:
  const image::ZeroMap zeros_;
  const int files_[2];
};

}  // namespace ramet::commit
