#include "cli/session.h"

#include <cstdio>

#include "cli/places.h"

namespace ramet::cli {

Result<const ApiClient*> Session::api() {
  if (!api_) {
    TRY_ASSIGN(Endpoint endpoint, pick_server(url));
    api_.emplace(std::move(endpoint));
  }
  return &*api_;
}

void Session::print_json(const boost::json::value& value) const { printf("%s\n", boost::json::serialize(value).c_str()); }

void Session::print_text(const std::string& text) const { printf("%s%s", text.c_str(), text.ends_with('\n') ? "" : "\n"); }

void Session::note(std::string_view text) const {
  if (!quiet) fprintf(stderr, "ramet: %.*s\n", static_cast<int>(text.size()), text.data());
}

void Session::print_error(const Error& error) const {
  if (json) {
    const boost::json::object body{{"code", kind_name(error.kind())}, {"message", error.message()}, {"hint", error.hint()}};
    fprintf(stderr, "%s\n", boost::json::serialize(boost::json::object{{"error", body}}).c_str());
    return;
  }
  fprintf(stderr, "%s %s\n", painted("ramet: error:", Colour::kRed, colours_err()).c_str(), error.message().c_str());
  if (!error.hint().empty()) fprintf(stderr, "  %s\n", error.hint().c_str());
}

}  // namespace ramet::cli
