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

  // A pack: its checksum and that of each frame; it is read once. A chunk: put together, against its name. Of what a collection
  // took away since the caller heard of it nothing is noted.
  template <class Name>
  void look_at(const Name& name) {
    const auto before = static_cast<std::ptrdiff_t>(report.problems.size());
    inspect(name);
    const auto noted = report.problems.begin() + before;
    if (noted != report.problems.end() && is_gone(name)) report.problems.erase(noted, report.problems.end());
  }
  void note(std::string where, const Error& error) { report.problems.push_back({std::move(where), error}); }

  VerifyReport report;
  uint64_t bytes_read = 0;  // of packs, and of chunks put together

 private:
  void inspect(const PackId& id);
  void inspect(const Digest& chunk);
  bool is_gone(const PackId& id) const;
  bool is_gone(const Digest& chunk) const;
  Result<PackTail> read_whole(const PackId& id);

  const Store& store_;
  FrameDecoder decoder_;
  std::vector<std::byte> bytes_, plain_;  // kept for their capacity
};

}  // namespace ramet::chunk
