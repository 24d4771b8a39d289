// chunk/inspection.h - one pack or one chunk looked at, every byte of it: what verify() does at a stretch and a scrub bit by
// bit. Not for users of the folder: maintenance.h and scrub.h are. Thread: one.
#pragma once

#include <vector>

#include "chunk/frame.h"
#include "chunk/maintenance.h"

namespace ramet::chunk {

class Inspection {
 public:
  explicit Inspection(const Store& store) : store_(store) {}

  // Its checksum and that of each frame. The pack is read once.
  void look_at(const PackId& id);
  // Put together, against its name.
  void look_at(const Digest& chunk);
  void note(std::string where, const Error& error) { report.problems.push_back({std::move(where), error}); }

  VerifyReport report;
  uint64_t bytes_read = 0;  // of packs, and of chunks put together

 private:
  Result<PackTail> read_whole(const PackId& id);

  const Store& store_;
  FrameDecoder decoder_;
  std::vector<std::byte> bytes_, plain_;  // kept for their capacity
};

}  // namespace ramet::chunk
