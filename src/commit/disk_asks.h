// commit/disk_asks.h - blocks of a disk over a socket between us and a process of ours that has nothing but that socket: it
// asks by block, and says at the end what was wrong, if something was.
//
//   ask      first block, number of blocks, 8 bytes each, little endian; the answer is these blocks, nothing before them
//   refusal  8 bytes of ones, the length of a sentence (at most kMostSaidBytes), the sentence; no answer
//
// Whoever answers takes the asking process for hostile: what it asks is checked, what is no ask ends the talk. An error of the
// disk ends it, too, without an answer. Thread: one each. Owner: sockets are borrowed.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "image/source.h"

namespace ramet::commit {

inline constexpr uint64_t kMostAskedBlocks = 256;
inline constexpr size_t kMostSaidBytes = 8192;

// The asking side.
class AskedSource final : public image::BlockSource {
 public:
  AskedSource(int socket, uint64_t blocks) : socket_(socket), blocks_(blocks) {}
  uint64_t size_blocks() const override { return blocks_; }
  // Thread: one.   Errors: kInvalid (range), kUnavailable (no answer).
  Result<bool> read(image::BlockRange range, std::span<const iovec> to, image::Wait wait) const override;

 private:
  const int socket_;
  const uint64_t blocks_;
};
void say_refusal(int socket, const Error& error);

using ReadBlocks = std::function<Status(image::BlockRange range, std::span<std::byte> out)>;
// Answers until the other side has closed its end. The refusal, if one was said.
// Errors: those of `read`, kCorrupt (what came was no ask), kIo.
Result<std::optional<Error>> answer_asks(int socket, uint64_t disk_blocks, const ReadBlocks& read);

}  // namespace ramet::commit
