#include "api/import_events.h"

#include <boost/json.hpp>

#include "api/error_table.h"
#include "api/handlers.h"
#include "api/render.h"
#include "base/file.h"

namespace ramet::api {
namespace {

namespace json = boost::json;

Status write_line(Exchange& exchange, const json::object& event) {
  const std::string line = to_text(event) + "\n";
  return exchange.write(as_bytes(line));
}

}  // namespace

void ImportEvents::step(std::string_view step, uint64_t done_bytes, uint64_t total_bytes) {
  if (wanted_ == Wanted::kAnswer || MonotonicClock::now() - last_ < kInterval) return;
  last_ = MonotonicClock::now();
  if (!exchange_.answered() && !exchange_.begin_stream({200, "application/x-ndjson", "", {}})) return;
  static_cast<void>(
      write_line(exchange_, {{"type", "progress"}, {"step", step}, {"done_bytes", done_bytes}, {"total_bytes", total_bytes}}));
}

Status ImportEvents::end(const Result<host::ImageInfo>& image) {
  if (!exchange_.answered()) {
    if (!image) return tl::unexpected<Error>(image.error());
    return exchange_.respond(json_response(201, to_json(*image)));
  }
  if (image)
    TRY(write_line(exchange_, {{"type", "image"}, {"image", to_json(*image)}}));
  else
    TRY(write_line(exchange_, {{"type", "error"}, {"error", error_object(image.error(), exchange_.request_id())}}));
  return exchange_.end_stream();
}

}  // namespace ramet::api
