// api/error_table.h - the one table from what went wrong to what HTTP says: code, status, default hint.
// Not here: exit codes (cli/exit_codes.h), messages (they come with the Error). Thread: pure functions over constants.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <boost/json/fwd.hpp>

#include "base/result.h"

namespace ramet::api {

struct ErrorRow {
  std::string_view code;  // stable, listed in api/openapi.yaml
  int status;
  std::string_view hint;  // used when the Error carries none
};

// One row per ErrorKind and the few that only HTTP knows.
std::span<const ErrorRow> error_rows();
const ErrorRow& row_of_kind(ErrorKind kind);
// Requires: code is one of error_rows(); anything else is answered with the row of `internal`.
const ErrorRow& row_of_code(std::string_view code);

// The value of "error" in an error body.
boost::json::object error_object(const ErrorRow& row, std::string_view message, std::string_view hint,
                                 std::string_view request_id);
boost::json::object error_object(const Error& error, std::string_view request_id);
// {"error":{...}} as text.
std::string error_body(const ErrorRow& row, std::string_view message, std::string_view hint, std::string_view request_id);

}  // namespace ramet::api
