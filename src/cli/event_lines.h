// cli/event_lines.h - an answer of lines, each a JSON object: events of a command, progress of an import. Thread: one.
#pragma once

#include <functional>
#include <string_view>

#include "cli/api_client.h"

namespace ramet::cli {

enum class Events { kGoOn, kAreOver };
// Reads events until one is the last, as `take` says.   Errors: those of the stream, kCorrupt (no JSON object, a line of more
// than 4 MiB), kUnavailable (it ended before), what `take` returns.
Status read_events(HttpStream& stream, const std::function<Result<Events>(const boost::json::object& event)>& take);

}  // namespace ramet::cli
