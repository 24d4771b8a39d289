// api/utf8.h - is it UTF-8, and base64 for what is not: bytes of commands in JSON.
// Not here: any other charset. Thread: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ramet::api {

bool is_utf8(std::string_view bytes);
// Number of bytes at the end that may be the start of a sequence whose rest has not come yet (0 to 3).
size_t incomplete_utf8_tail(std::string_view bytes);
// Invalid bytes become U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

std::string base64_encode(std::string_view bytes);
// nullopt when it is not base64 (padding required, no white space).
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace ramet::api
