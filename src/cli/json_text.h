// cli/json_text.h - strings out of the server's JSON, and maps of them into it. What is missing or of another type is empty: a
// newer server may leave it out. Thread: pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <boost/json.hpp>

namespace ramet::cli {

inline std::string text_of(const boost::json::object& o, std::string_view name) {
  const boost::json::value* v = o.if_contains(boost::json::string_view(name.data(), name.size()));
  return v != nullptr && v->is_string() ? std::string(v->get_string()) : std::string();
}

inline boost::json::object object_of(const std::map<std::string, std::string>& map) {
  boost::json::object o;
  for (const auto& [key, value] : map) o[key] = value;
  return o;
}

}  // namespace ramet::cli
