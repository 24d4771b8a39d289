#include "api/exec_events.h"

#include <boost/json.hpp>

#include "api/error_table.h"
#include "api/render.h"
#include "api/utf8.h"

namespace ramet::api {
namespace {

namespace json = boost::json;

void add_line(std::string& lines, const json::object& event) {
  lines += to_text(event);
  lines += '\n';
}

void add_data(std::string& lines, std::string_view type, std::string_view bytes, uint64_t offset) {
  if (bytes.empty()) return;
  json::object o;
  o["type"] = type;
  if (is_utf8(bytes)) {
    o["data"] = bytes;
  } else {
    o["data"] = base64_encode(bytes);
    o["encoding"] = "base64";
  }
  o["offset"] = offset;
  add_line(lines, o);
}

}  // namespace

void ExecEventEncoder::flush(std::string& lines, std::string_view type, Stream& stream) {
  add_data(lines, type, stream.kept, stream.next - stream.kept.size());
  stream.kept.clear();
}

void ExecEventEncoder::add_output(std::string& lines, std::string_view type, Stream& stream, const host::ExecEvent& event) {
  if (event.offset != stream.next) {
    flush(lines, type, stream);
    if (event.offset > stream.next)
      add_line(lines, json::object{{"type", "gap"}, {"stream", type}, {"bytes", event.offset - stream.next}});
    stream.next = event.offset;
  }
  std::string bytes = std::move(stream.kept);
  const uint64_t offset = stream.next - bytes.size();
  bytes += event.data;
  const size_t tail = incomplete_utf8_tail(bytes);
  stream.kept = bytes.substr(bytes.size() - tail);
  stream.next = event.offset + event.data.size();
  add_data(lines, type, std::string_view(bytes).substr(0, bytes.size() - tail), offset);
}

std::string ExecEventEncoder::encode(const host::ExecEvent& event) {
  using Kind = host::ExecEvent::Kind;
  std::string lines;
  switch (event.kind) {
    case Kind::kStarted: add_line(lines, json::object{{"type", "started"}, {"pid", event.pid}}); break;
    case Kind::kStdout: add_output(lines, "stdout", stdout_, event); break;
    case Kind::kStderr: add_output(lines, "stderr", stderr_, event); break;
    case Kind::kExit: {
      flush(lines, "stdout", stdout_);
      flush(lines, "stderr", stderr_);
      json::object o{{"type", "exit"}};
      add_exit(o, event.exit);
      add_line(lines, o);
      break;
    }
    case Kind::kDetached: add_line(lines, json::object{{"type", "detached"}}); break;
  }
  return lines;
}

std::string ExecEventEncoder::encode_error(const Error& error, std::string_view request_id) {
  std::string lines;
  flush(lines, "stdout", stdout_);
  flush(lines, "stderr", stderr_);
  add_line(lines, json::object{{"type", "error"}, {"error", error_object(error, request_id)}});
  return lines;
}

std::string ExecEventEncoder::ping() { return "{\"type\":\"ping\"}\n"; }

}  // namespace ramet::api
