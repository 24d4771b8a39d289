// image/chunked_source.h - a read-only disk whose chunks are at the daemon: blocks of a chunk that is held come from its
// descriptor, all others are asked for, and only those. Not here: the connection (chunk_client.h), which descriptors are held
// (held_chunks.h), who caches what was fetched (the guest, and the daemon's chunk cache).
//
// Thread: reads as BlockSource, and cancel(); attach(), tend(), socket() and after_fork() from one thread. Owner: whoever made
// it; destroyed, and the process forked, with no read in progress.
#pragma once

#include "image/chunk_client.h"
#include "image/held_chunks.h"
#include "image/source.h"

namespace ramet::image {

class IovecCursor;

class ChunkedSource final : public BlockSource {
 public:
  // `socket` is connected, and bound to a disk of so many blocks, or is told its name. `content`: what its welcome must say.
  ChunkedSource(uint64_t blocks, UniqueFd socket, std::string name = {}, std::optional<uint64_t> content = {})
      : blocks_(blocks), held_(blocks), client_(blocks, held_, std::move(name), content) {
    attach(std::move(socket));
  }

  uint64_t size_blocks() const override { return blocks_; }
  // Waits for a daemon that is away.   Errors: also what the daemon answered, kCorrupt (it broke the rules), kCancelled.
  Result<bool> read(BlockRange range, std::span<const iovec> to, Wait wait) const override;
  // Whole chunks that were found to be zero.
  Content content_at(BlockRange range) const override;
  // The chunks' and not the socket: a forked child gets one of its own, by attach().
  void append_descriptors(std::vector<int>& out) const override { held_.append_descriptors(out); }
  void after_fork() override { client_.after_fork(); }

  // As in chunk_client.h.
  void attach(UniqueFd socket) { client_.attach(std::move(socket)); }
  bool tend() { return client_.tend(); }
  void give_up(const Error& why) { client_.give_up(why); }
  void cancel() { client_.cancel(); }
  int socket() const { return client_.socket(); }

 private:
  Result<uint64_t> fetch(uint64_t offset, uint64_t bytes, IovecCursor& to) const;

  const uint64_t blocks_;
  // What reading learns.
  mutable HeldChunks held_;
  mutable ChunkClient client_;
};

}  // namespace ramet::image
