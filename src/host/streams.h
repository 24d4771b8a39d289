// host/streams.h - the long operations of a sandbox as objects: a running command, a file on its way in or out, an upload.
// Pull, not push: nothing is read from the guest before the caller asks, so a slow client slows the guest, not our memory.
// Thread: `next`/`write` by one thread at a time; input methods and cancel() by any other at the same time. cancel() wakes a
// blocked call, which then fails with kCancelled. Destroying a stream gives up the answer: a command goes on, a file being
// written does not appear. Owner: the caller; a stream may outlive neither its Host nor a deletion (it then fails).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "host/types.h"

namespace ramet::host {

class ExecStream {
 public:
  virtual ~ExecStream() = default;
  // The next event; nothing after kExit or kDetached was delivered.
  // Errors: kTimeout (nothing by the deadline, call again), kCancelled, kUnavailable (the sandbox ended), the agent's own.
  virtual Result<std::optional<ExecEvent>> next(Deadline deadline) = 0;
  // Blocks while the guest does not read. Errors: kConflict (no stdin), kTimeout, kUnavailable.
  virtual Status write_stdin(std::string_view data, Deadline deadline) = 0;
  virtual Status close_stdin() = 0;
  virtual Status send_signal(uint32_t signal) = 0;
  virtual Status resize(WindowSize size) = 0;
  virtual void cancel() = 0;
};

class FileReader {
 public:
  virtual ~FileReader() = default;
  // At most 64 KiB at a time; nothing at the end.
  virtual Result<std::optional<std::string>> next(Deadline deadline) = 0;
  virtual void cancel() = 0;
};

class FileWriter {
 public:
  virtual ~FileWriter() = default;
  virtual Status write(std::span<const std::byte> data, Deadline deadline) = 0;
  // The contents are on the guest's disk under their name when this answers.
  virtual Result<FileInfo> finish(Deadline deadline) = 0;
  virtual void cancel() = 0;
};

// One file of a template on its way in: plain bytes in order (already decompressed); zero blocks become holes.
class TemplateFileWriter {
 public:
  virtual ~TemplateFileWriter() = default;
  // Errors: kNoSpace, kInvalid (longer than the host allows).
  virtual Status write(std::span<const std::byte> data) = 0;
  // Synced, with its digest. Not finished = discarded.
  virtual Result<TemplateFile> finish() = 0;
};

}  // namespace ramet::host
