// image/source.h - what a disk is to the code above: blocks that can be read, and for a writable disk also written, zeroed and
// flushed. Layers (raw file, overlay stack, fakes) implement these two small interfaces and nothing else.
// Not here: guest addresses, requests, paths.
//
// Thread: every method concurrently with every other. Overlapping requests in flight have no order, as on any disk.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "image/block.h"
#include "image/file.h"

namespace ramet::image {

class BlockSource {
 public:
  virtual ~BlockSource() = default;
  virtual uint64_t size_blocks() const = 0;
  // Requires: the buffers are range.count blocks long together.
  // Errors: kInvalid (range not on the disk), kIo. False: not without waiting; buffers then hold anything.
  virtual Result<bool> read(BlockRange range, std::span<const iovec> to, Wait wait) const = 0;
  // What is known about content without reading it: of the run at range.first, cut to the range, whether all of it is zero.
  // False says nothing.   Requires: the range is on the disk, not empty.   Thread: as read(); of writes in flight it may tell
  // either.
  struct Content {
    BlockRange range;
    bool zero = false;
  };
  virtual Content content_at(BlockRange range) const { return {range, false}; }
  // Descriptors that a forked child must keep.
  virtual void append_descriptors(std::vector<int>&) const {}
  // A forked child calls this first, single-threaded; the fork was made with no read in progress.
  virtual void after_fork() {}
};

class BlockTarget : public BlockSource {
 public:
  // Visible to reads that begin afterwards; durable after the next flush.
  // Errors: kInvalid, kNoSpace, kIo, kPermission (read-only). After an error each block holds its old or its new content.
  virtual Status write(BlockRange range, std::span<const iovec> from) = 0;
  // The range reads as zero afterwards, its space is given back after the next flush.   Errors: as write.
  virtual Status zero(BlockRange range) = 0;
  // Everything completed before the call is durable afterwards.   Errors: kNoSpace, kIo. Once a sync failed every later flush
  // fails.
  virtual Status flush() = 0;

  // Slow work in the background that keeps the target fit (overlays: few layers), concurrently with everything. True: called
  // for.
  virtual bool wants_upkeep() const { return false; }
  virtual Status upkeep() { return {}; }

  // Around a fork, with no read, write or zero in progress. Between hold() and release() a flush in progress changes nothing in
  // memory; a forked child calls after_fork() first, single-threaded, and is then still held.
  virtual void hold() {}
  virtual void release() {}
};

}  // namespace ramet::image
