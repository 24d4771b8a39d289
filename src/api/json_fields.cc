#include "api/json_fields.h"

#include <algorithm>
#include <cmath>

#include "api/utf8.h"

namespace ramet::api {
namespace {

namespace json = boost::json;

// A value as it may stand in a message: short and on one line.
std::string shown(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  std::string s = to_valid_utf8(text.substr(0, kMaxShown));
  for (char& c : s)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  if (text.size() > kMaxShown) s += "...";
  return s;
}

std::string shown(const json::value& value) {
  const std::string text = value.is_string() ? std::string(value.get_string()) : json::serialize(value);
  return shown(std::string_view(text));
}

}  // namespace

Result<json::object> parse_json_object(std::string_view text) {
  if (text.size() > kMaxJsonBytes)
    return ::ramet::fail(ErrorKind::kInvalid, "the body has " + std::to_string(text.size()) + " bytes, the limit for JSON is " +
                                                  std::to_string(kMaxJsonBytes));
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return json::object();
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::error_code ec;
  json::value value = json::parse(text, ec, json::storage_ptr(), options);
  if (ec == json::error::too_deep)
    return ::ramet::fail(ErrorKind::kInvalid, "the body nests deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  if (ec) return ::ramet::fail(ErrorKind::kInvalid, "the body is not JSON: " + ec.message());
  if (!value.is_object())
    return ::ramet::fail(ErrorKind::kInvalid, "the body must be a JSON object, not `" + shown(value) + "`");
  return std::move(value.get_object());
}

const json::value* FieldReader::take(std::string_view name, Need need) {
  known_.push_back(name);
  if (error_) return nullptr;
  const json::value* value = object_.if_contains(json::string_view(name.data(), name.size()));
  if (value != nullptr && value->is_null()) value = nullptr;  // null is the same as absent
  if (value == nullptr && need == Need::kRequired) fail("field `" + std::string(name) + "` is missing");
  return value;
}

void FieldReader::fail(std::string message) {
  if (!error_) error_ = Error(ErrorKind::kInvalid, std::move(message));
}

void FieldReader::wrong_type(std::string_view name, const json::value& value, std::string_view wanted) {
  fail("field `" + std::string(name) + "` must be " + std::string(wanted) + ", not `" + shown(value) + "`");
}

const json::value* FieldReader::any(std::string_view name) { return take(name); }

void FieldReader::string(std::string_view name, std::optional<std::string>* out, size_t max_bytes, Need need) {
  const json::value* value = take(name, need);
  if (value == nullptr) return;
  if (!value->is_string()) return wrong_type(name, *value, "a string");
  const std::string_view text(value->get_string().data(), value->get_string().size());
  if (text.size() > max_bytes)
    return fail("field `" + std::string(name) + "` has " + std::to_string(text.size()) + " bytes, the limit is " +
                std::to_string(max_bytes));
  if (text.find('\0') != std::string_view::npos) return fail("field `" + std::string(name) + "` holds a NUL byte");
  *out = std::string(text);
}

void FieldReader::integer(std::string_view name, std::optional<int64_t>* out, IntRange range, Need need) {
  const json::value* value = take(name, need);
  if (value == nullptr) return;
  std::string wanted = "an integer from " + std::to_string(range.min) + " to " + std::to_string(range.max);
  json::error_code ec;
  const int64_t number = value->is_number() ? value->to_number<int64_t>(ec) : 0;
  if (!value->is_number() || ec || number < range.min || number > range.max) return wrong_type(name, *value, wanted);
  *out = number;
}

void FieldReader::number(std::string_view name, std::optional<double>* out, double above, double max) {
  const json::value* value = take(name);
  if (value == nullptr) return;
  const double number = value->is_number() ? value->to_number<double>() : 0;
  if (!value->is_number() || !(number > above) || !(number <= max))
    return wrong_type(
        name, *value,
        "a number above " + json::serialize(json::value(above)) + " and at most " + json::serialize(json::value(max)));
  *out = number;
}

void FieldReader::boolean(std::string_view name, bool* out) {
  const json::value* value = take(name);
  if (value == nullptr) return;
  if (!value->is_bool()) return wrong_type(name, *value, "true or false");
  *out = value->get_bool();
}

void FieldReader::word(std::string_view name, std::initializer_list<std::string_view> words, size_t* out) {
  const json::value* value = take(name);
  if (value == nullptr) return;
  std::string wanted;
  for (const std::string_view w : words) wanted += (wanted.empty() ? "`" : ", `") + std::string(w) + "`";
  if (!value->is_string()) return wrong_type(name, *value, "one of " + wanted);
  const auto it =
      std::find(words.begin(), words.end(), std::string_view(value->get_string().data(), value->get_string().size()));
  if (it == words.end()) return wrong_type(name, *value, "one of " + wanted);
  *out = static_cast<size_t>(it - words.begin());
}

void FieldReader::strings(std::string_view name, std::optional<std::vector<std::string>>* out, size_t max_count,
                          size_t max_bytes) {
  const json::value* value = take(name);
  if (value == nullptr) return;
  if (!value->is_array()) return wrong_type(name, *value, "a list of strings");
  const json::array& array = value->get_array();
  if (array.empty() || array.size() > max_count)
    return fail("field `" + std::string(name) + "` has " + std::to_string(array.size()) + " entries, allowed are 1 to " +
                std::to_string(max_count));
  std::vector<std::string> result;
  for (const json::value& entry : array) {
    if (!entry.is_string()) return wrong_type(name, entry, "a list of strings");
    std::string text(entry.get_string().data(), entry.get_string().size());
    if (text.size() > max_bytes || text.find('\0') != std::string::npos)
      return fail("field `" + std::string(name) + "`: an entry has " + std::to_string(text.size()) +
                  " bytes or holds a NUL byte, the limit is " + std::to_string(max_bytes));
    result.push_back(std::move(text));
  }
  *out = std::move(result);
}

void FieldReader::string_map(std::string_view name, std::optional<StringMap>* out, MapLimits limits) {
  const json::value* value = take(name);
  if (value == nullptr) return;
  if (!value->is_object()) return wrong_type(name, *value, "an object of strings");
  const json::object& object = value->get_object();
  if (object.size() > limits.max_count)
    return fail("field `" + std::string(name) + "` has " + std::to_string(object.size()) + " entries, the limit is " +
                std::to_string(limits.max_count));
  StringMap result;
  for (const json::key_value_pair& pair : object) {
    const std::string key(pair.key().data(), pair.key().size());
    const std::string where = std::string(name) + "." + shown(key);
    if (key.empty() || key.size() > limits.max_key_bytes || key.find('\0') != std::string::npos)
      return fail("field `" + where + "`: the name has " + std::to_string(key.size()) + " bytes, allowed are 1 to " +
                  std::to_string(limits.max_key_bytes) + " without NUL");
    if (!pair.value().is_string()) return wrong_type(where, pair.value(), "a string");
    std::string text(pair.value().get_string().data(), pair.value().get_string().size());
    if (text.size() > limits.max_value_bytes || text.find('\0') != std::string::npos)
      return fail("field `" + where + "`: the value has " + std::to_string(text.size()) + " bytes, allowed are " +
                  std::to_string(limits.max_value_bytes) + " without NUL");
    result[key] = std::move(text);
  }
  *out = std::move(result);
}

Status FieldReader::finish() {
  if (!error_) {
    for (const json::key_value_pair& pair : object_) {
      const std::string_view key(pair.key().data(), pair.key().size());
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::string names;
      for (const std::string_view k : known_) names += (names.empty() ? "`" : ", `") + std::string(k) + "`";
      fail("field `" + shown(key) + "` is not known here; known are " + (names.empty() ? "none" : names));
      break;
    }
  }
  if (error_) return tl::unexpected(*error_);
  return {};
}

}  // namespace ramet::api
