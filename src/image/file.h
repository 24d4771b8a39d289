// image/file.h - the seam between image code and the file system: offset reads and writes, sync, punch. PosixFile is the real
// one; tests put one below that forgets what was not synced. Not here: paths (descriptors come from the daemon), formats.
//
// A file may have a *writer* (a descriptor open for writing) besides its reading one. drop_writer() closes it for good: what is
// left can be read and synced only, which is how an overlay is frozen.
// Thread: read, sync and start_writeback concurrently with everything; the others are the owner's to order.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::image {

enum class Wait {
  kAllowed,  // may sleep for the disk
  kNever,    // only what is there at once (page cache)
};

// Fills all buffers from a file; what lies past its end reads as zero. False: not without waiting (then the buffers hold
// anything).   Errors: kIo.
Result<bool> read_at(int fd, uint64_t offset, std::span<const iovec> to, Wait wait);

class File {
 public:
  virtual ~File() = default;

  // As read_at().
  virtual Result<bool> read(uint64_t offset, std::span<const iovec> to, Wait wait) const = 0;
  // Writes all buffers.   Errors: kNoSpace, kIo; part of it may have been written.
  virtual Status write(uint64_t offset, std::span<const iovec> from) = 0;
  // What was written before is on the disk afterwards. Needs no writer.
  virtual Status sync() const = 0;
  // Gives the space back; the range then reads as zero.
  virtual Status punch(uint64_t offset, uint64_t length) = 0;
  // Begins to write dirty pages back, without waiting. Advice only.
  virtual void start_writeback() const = 0;
  virtual Result<uint64_t> size() const = 0;
  // The stretch at `offset`, cut to `length`, that is all hole (and reads as zero) or may all be data.
  struct Stretch {
    uint64_t bytes = 0;
    bool hole = false;
  };
  virtual Stretch stretch_at(uint64_t, uint64_t length) const { return {length, false}; }
  virtual Status resize(uint64_t bytes) = 0;

  virtual bool has_writer() const = 0;
  virtual void drop_writer() = 0;
  // Descriptors that a forked child must keep.
  virtual void append_descriptors(std::vector<int>& out) const = 0;
};

class PosixFile final : public File {
 public:
  // `reader` is open for reading, `writer` (or none) for writing the same file.
  explicit PosixFile(UniqueFd reader, UniqueFd writer = {}) : reader_(std::move(reader)), writer_(std::move(writer)) {}

  Result<bool> read(uint64_t offset, std::span<const iovec> to, Wait wait) const override {
    return read_at(reader_.get(), offset, to, wait);
  }
  Status write(uint64_t offset, std::span<const iovec> from) override;
  Status sync() const override;
  Status punch(uint64_t offset, uint64_t length) override;
  void start_writeback() const override;
  Result<uint64_t> size() const override;
  Stretch stretch_at(uint64_t offset, uint64_t length) const override;
  Status resize(uint64_t bytes) override;
  bool has_writer() const override { return writer_.valid(); }
  void drop_writer() override { writer_.reset(); }
  void append_descriptors(std::vector<int>& out) const override;

 private:
  UniqueFd reader_;
  UniqueFd writer_;
};

// Whole-buffer forms.
Status read_all(const File& file, uint64_t offset, std::span<std::byte> out);
Status write_all(File& file, uint64_t offset, std::span<const std::byte> data);

}  // namespace ramet::image
