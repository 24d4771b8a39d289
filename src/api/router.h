// api/router.h - request target -> path parameters and query; method and path -> route. The table itself is data (routes.h).
// Not here: handlers. Thread: values and pure functions. Errors: kInvalid (broken percent-encoding, too many parts).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ramet::api {

// A request's target, percent-decoded. In a query `+` is a space, as browsers and libraries write it.
struct Target {
  std::vector<std::string> segments;  // of the path
  std::vector<std::pair<std::string, std::string>> query;

  // First value of a query parameter; empty when absent.
  std::string_view get(std::string_view name) const;
  // "1" -> true, "0" and absent -> false.   Errors: kInvalid.
  Result<bool> flag(std::string_view name) const;
};
Result<Target> parse_target(std::string_view target);

struct PathParameters {
  std::vector<std::pair<std::string_view, std::string>> values;  // names point into the pattern
  std::string_view operator[](std::string_view name) const;
};

// `pattern` is like "/v1/sandboxes/{id}"; every parameter is one non-empty segment.
std::optional<PathParameters> match_path(std::string_view pattern, std::span<const std::string> segments);

}  // namespace ramet::api
