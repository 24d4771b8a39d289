#include "cli/event_lines.h"

#include <string>
#include <vector>

namespace ramet::cli {
namespace {

constexpr size_t kMaxLineBytes = 4u << 20;

Result<Events> take_line(std::string_view line, const std::function<Result<Events>(const boost::json::object&)>& take) {
  TRY_ASSIGN(const boost::json::value value, parse_json(line));
  if (!value.is_object()) return fail(ErrorKind::kCorrupt, "the server sent an event that is no object");
  return take(value.get_object());
}

}  // namespace

Status read_events(HttpStream& stream, const std::function<Result<Events>(const boost::json::object& event)>& take) {
  std::string pending;
  std::vector<std::byte> piece(64 * 1024);
  while (true) {
    TRY_ASSIGN(const size_t n, stream.read_some(piece));
    if (n == 0) return fail(ErrorKind::kUnavailable, "the stream ended without its last event");
    const size_t searched = pending.size();
    pending.append(reinterpret_cast<const char*>(piece.data()), n);
    size_t begin = 0;
    for (size_t end = pending.find('\n', searched); end != std::string::npos; end = pending.find('\n', begin)) {
      TRY_ASSIGN(const Events events, take_line(std::string_view(pending).substr(begin, end - begin), take));
      if (events == Events::kAreOver) return {};
      begin = end + 1;
    }
    pending.erase(0, begin);
    if (pending.size() > kMaxLineBytes) return fail(ErrorKind::kCorrupt, "the server sent an event of more than 4 MiB");
  }
}

}  // namespace ramet::cli
