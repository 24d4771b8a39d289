// api/json_fields.h - bytes of a request -> checked values: bounded depth, every field known, numbers within their limits.
// Not here: which request has which fields (requests.h). Thread: values.
// Usage: FieldReader r(object); r.string("name", &name); ...; TRY(r.finish()). The first error is kept; later calls do nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/result.h"

namespace ramet::api {

inline constexpr size_t kMaxJsonBytes = 1 << 20;
inline constexpr size_t kMaxJsonDepth = 16;

// Errors: kInvalid (not JSON, deeper than kMaxJsonDepth, not an object). An empty text is an empty object.
Result<boost::json::object> parse_json_object(std::string_view text);

using StringMap = std::map<std::string, std::string>;

struct IntRange {
  int64_t min, max;
};

class FieldReader {
 public:
  enum class Need { kRequired, kOptional };
  explicit FieldReader(const boost::json::object& object) : object_(object) {}

  // A string without NUL bytes of at most `max_bytes`.
  void string(std::string_view name, std::optional<std::string>* out, size_t max_bytes, Need need = Need::kOptional);
  void integer(std::string_view name, std::optional<int64_t>* out, IntRange range, Need need = Need::kOptional);
  void number(std::string_view name, std::optional<double>* out, double above, double max);
  void boolean(std::string_view name, bool* out);
  // One of `words`; `out` becomes its index.
  void word(std::string_view name, std::initializer_list<std::string_view> words, size_t* out);
  void strings(std::string_view name, std::optional<std::vector<std::string>>* out, size_t max_count, size_t max_bytes);
  struct MapLimits {
    size_t max_count, max_key_bytes, max_value_bytes;
  };
  void string_map(std::string_view name, std::optional<StringMap>* out, MapLimits limits);
  // nullptr when absent.
  const boost::json::value* any(std::string_view name);

  void fail(std::string message);
  // The first error, or kInvalid for a field that nobody asked for.
  Status finish();

 private:
  const boost::json::value* take(std::string_view name, Need need = Need::kOptional);
  void wrong_type(std::string_view name, const boost::json::value& value, std::string_view wanted);

  const boost::json::object& object_;
  std::vector<std::string_view> known_;
  std::optional<Error> error_;
};

}  // namespace ramet::api
