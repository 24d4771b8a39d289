// cli/content_digest.h - names for contents: SHA-256, of bytes and of what a copy of a file or directory would bring.
// Not here: what is done with them (build_plan.h). Thread: stateless.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace ramet::cli {

// 64 hex digits.
std::string sha256_hex(std::string_view bytes);
// Of names, types, permissions, bytes and targets of links; not of times and owners.
// Errors: kInvalid (neither a file, a directory nor a link is in it), by errno.
Result<std::string> content_digest(const std::string& path);

}  // namespace ramet::cli
