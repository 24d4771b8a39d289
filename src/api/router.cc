#include "api/router.h"

#include "api/utf8.h"

namespace ramet::api {
namespace {

constexpr size_t kMaxSegments = 16;
constexpr size_t kMaxQueryParameters = 32;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

enum class Plus { kIsPlus, kIsSpace };

Result<std::string> percent_decode(std::string_view in, Plus plus) {
  std::string out;
  out.reserve(in.size());
  for (size_t i = 0; i < in.size(); i++) {
    if (in[i] == '+' && plus == Plus::kIsSpace) {
      out += ' ';
    } else if (in[i] != '%') {
      out += in[i];
    } else {
      const int high = i + 2 < in.size() ? hex_digit(in[i + 1]) : -1;
      const int low = high >= 0 ? hex_digit(in[i + 2]) : -1;
      if (low < 0)
        return fail(ErrorKind::kInvalid,
                    "the percent-encoding at `" + to_valid_utf8(in.substr(i, 3)) + "` is broken; write % as %25");
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

// Calls `each` for every part between separators.
template <class Each>
Status split(std::string_view text, char separator, Each each) {
  while (true) {
    const size_t end = text.find(separator);
    TRY(each(text.substr(0, end)));
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string_view Target::get(std::string_view name) const {
  for (const auto& [key, value] : query)
    if (key == name) return value;
  return {};
}

Result<bool> Target::flag(std::string_view name) const {
  const std::string_view value = get(name);
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  return fail(ErrorKind::kInvalid,
              "`" + std::string(name) + "` must be 0 or 1, not `" + to_valid_utf8(value.substr(0, 20)) + "`");
}

Result<Target> parse_target(std::string_view target) {
  if (!target.starts_with('/'))
    return fail(ErrorKind::kInvalid, "the path must start with `/`, not be `" + to_valid_utf8(target.substr(0, 80)) + "`");
  Target out;
  const size_t question = target.find('?');
  TRY(split(target.substr(1, question == std::string_view::npos ? question : question - 1), '/',
            [&](std::string_view part) -> Status {
              if (out.segments.size() == kMaxSegments) return fail(ErrorKind::kInvalid, "the path has more than 16 segments");
              TRY_ASSIGN(std::string decoded, percent_decode(part, Plus::kIsPlus));
              out.segments.push_back(std::move(decoded));
              return {};
            }));
  if (question == std::string_view::npos || question + 1 == target.size()) return out;
  TRY(split(target.substr(question + 1), '&', [&](std::string_view part) -> Status {
    if (out.query.size() == kMaxQueryParameters) return fail(ErrorKind::kInvalid, "the query has more than 32 parameters");
    const size_t equals = part.find('=');
    TRY_ASSIGN(std::string name, percent_decode(part.substr(0, equals), Plus::kIsSpace));
    std::string value;
    if (equals != std::string_view::npos) {
      TRY_ASSIGN(value, percent_decode(part.substr(equals + 1), Plus::kIsSpace));
    }
    out.query.emplace_back(std::move(name), std::move(value));
    return {};
  }));
  return out;
}

std::string_view PathParameters::operator[](std::string_view name) const {
  for (const auto& [key, value] : values)
    if (key == name) return value;
  return {};
}

std::optional<PathParameters> match_path(std::string_view pattern, std::span<const std::string> segments) {
  PathParameters found;
  size_t at = 0;
  pattern.remove_prefix(1);
  while (true) {
    const size_t end = pattern.find('/');
    const std::string_view part = pattern.substr(0, end);
    if (at == segments.size()) return std::nullopt;
    const std::string& segment = segments[at++];
    if (part.starts_with('{')) {
      if (segment.empty()) return std::nullopt;
      found.values.emplace_back(part.substr(1, part.size() - 2), segment);
    } else if (part != segment) {
      return std::nullopt;
    }
    if (end == std::string_view::npos) break;
    pattern.remove_prefix(end + 1);
  }
  if (at != segments.size()) return std::nullopt;
  return found;
}

}  // namespace ramet::api
