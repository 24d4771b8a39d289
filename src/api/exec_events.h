// api/exec_events.h - events of a command as lines of JSON (application/x-ndjson): one event, one line.
// Idea: output is text when it is UTF-8 and base64 when it is not. A character that a read cut in two is kept back until its
// rest comes, so that plain text never turns into base64 by chance. At most 3 bytes per stream are kept. Not here: where events
// come from, how they are sent. Thread: one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "host/types.h"

namespace ramet::api {

class ExecEventEncoder {
 public:
  // Offsets from which output is expected: a later first byte becomes a `gap`.
  ExecEventEncoder(uint64_t stdout_offset, uint64_t stderr_offset) {
    stdout_.next = stdout_offset;
    stderr_.next = stderr_offset;
  }

  // Zero or more whole lines.
  std::string encode(const host::ExecEvent& event);
  // The last line of a stream that failed.
  std::string encode_error(const Error& error, std::string_view request_id);
  static std::string ping();

 private:
  struct Stream {
    uint64_t next = 0;  // offset of the next byte we expect
    std::string kept;   // start of a character, at most 3 bytes, ends at `next`
  };
  void add_output(std::string& lines, std::string_view type, Stream& stream, const host::ExecEvent& event);
  void flush(std::string& lines, std::string_view type, Stream& stream);

  Stream stdout_, stderr_;
};

}  // namespace ramet::api
