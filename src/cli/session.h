// cli/session.h - what every command needs: the server, and how to print. Not here: commands. Thread: one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/api_client.h"
#include "cli/terminal.h"

namespace ramet::cli {

class Session {
 public:
  std::string url;     // --url
  bool json = false;   // --json
  bool quiet = false;  // --quiet

  // Looks for the server at the first use.
  Result<const ApiClient*> api();
  bool colours_out() const { return has_colours(1); }
  bool colours_err() const { return has_colours(2); }
  void print_json(const boost::json::value& value) const;  // one line on stdout
  void print_text(const std::string& json_text) const;     // an answer as the server wrote it
  // "ramet: text" on stderr, not with --quiet.
  void note(std::string_view text) const;
  void print_error(const Error& error) const;

 private:
  std::optional<ApiClient> api_;
};

}  // namespace ramet::cli
