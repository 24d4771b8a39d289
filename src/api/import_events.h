// api/import_events.h - the answer to an import: one JSON object when it is over, or, where the client asked for it and the
// work takes longer than a moment, lines of JSON (application/x-ndjson) that tell how far it is. Not here: the work. Thread:
// that of the exchange.
#pragma once

#include <string_view>

#include "api/exchange.h"
#include "host/types.h"

namespace ramet::api {

class ImportEvents {
 public:
  // At most one line in such a time, and the first one after it.
  static constexpr Milliseconds kInterval{500};

  enum class Wanted { kAnswer, kEvents };
  ImportEvents(Exchange& exchange, Wanted wanted) : exchange_(exchange), wanted_(wanted) {}

  // A client that went away is not noticed here.
  void step(std::string_view step, uint64_t done_bytes, uint64_t total_bytes);
  // Errors: kCancelled; the import's own, where the answer has not begun.
  Status end(const Result<host::ImageInfo>& image);

 private:
  Exchange& exchange_;
  const Wanted wanted_;
  MonotonicClock::time_point last_ = MonotonicClock::now();
};

}  // namespace ramet::api
