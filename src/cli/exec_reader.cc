#include "cli/exec_reader.h"

#include <array>

#include "cli/event_lines.h"
#include "cli/json_text.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;

int64_t integer_of(const json::object& o, std::string_view name) {
  const json::value* v = o.if_contains(json::string_view(name.data(), name.size()));
  return v != nullptr && v->is_number() ? v->to_number<int64_t>() : 0;
}

Status give_output(const json::object& event, const std::function<Status(std::string_view)>& sink) {
  std::string bytes = text_of(event, "data");
  if (text_of(event, "encoding") == "base64") {
    std::optional<std::string> decoded = base64_decode(bytes);
    if (!decoded) return fail(ErrorKind::kCorrupt, "the server sent broken base64");
    bytes = std::move(*decoded);
  }
  return sink(bytes);
}

// nullopt: more events follow.
Result<std::optional<ExecEnd>> take_event(const json::object& event, const ExecSinks& sinks) {
  const std::string type = text_of(event, "type");
  if (type == "started" && sinks.started) sinks.started(static_cast<uint32_t>(integer_of(event, "pid")));
  if (type == "stdout") TRY(give_output(event, sinks.out));
  if (type == "stderr") TRY(give_output(event, sinks.err));
  if (type == "error") {
    const json::value* error = event.if_contains("error");
    return tl::unexpected(error_of_object(error != nullptr ? *error : json::value()));
  }
  if (type != "exit") return std::nullopt;
  const json::value* timed_out = event.if_contains("timed_out");
  return ExecEnd{static_cast<int>(integer_of(event, "exit_code")),
                 timed_out != nullptr && timed_out->is_bool() && timed_out->get_bool()};
}

}  // namespace

std::optional<std::string> base64_decode(std::string_view in) {
  static constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static constexpr auto kReverse = [] {
    std::array<int8_t, 256> r{};
    for (int8_t& v : r) v = -1;
    for (size_t i = 0; i < kAlphabet.size(); i++) r[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
    return r;
  }();
  while (in.ends_with('=')) in.remove_suffix(1);
  std::string out;
  out.reserve(in.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : in) {
    const int8_t d = kReverse[static_cast<unsigned char>(c)];
    if (d < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<uint32_t>(d);
    if ((count += 6) >= 8) out += static_cast<char>((bits >> (count -= 8)) & 0xff);
  }
  return out;
}

Result<ExecEnd> read_exec_events(HttpStream& stream, const ExecSinks& sinks) {
  std::optional<ExecEnd> end;
  TRY(read_events(stream, [&](const json::object& event) -> Result<Events> {
    TRY_ASSIGN(end, take_event(event, sinks));
    return end ? Events::kAreOver : Events::kGoOn;
  }));
  return *end;
}

}  // namespace ramet::cli
