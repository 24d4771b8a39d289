#include "parameters.h"

#include <charconv>
#include <filesystem>

namespace ramet::nbd {
namespace {

// nbdkit may change its directory later.
std::string absolute(std::string_view path) { return std::filesystem::absolute(path).string(); }

Result<std::chrono::seconds> parse_timeout(std::string_view text) {
  uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds > kMaxDaemonTimeout.count())
    return fail(ErrorKind::kInvalid, "timeout=" + std::string(text) + " is not a number of seconds from 0 to " +
                                         std::to_string(kMaxDaemonTimeout.count()));
  return std::chrono::seconds(seconds);
}

}  // namespace

const char* const kParametersHelp =
    "[image=]NAME     An image of the daemon's catalogue.\n"
    "socket=PATH      The daemon's chunk socket (required with image).\n"
    "file=PATH        A raw file instead of an image; its size is rounded up to 4096 bytes.\n"
    "overlay=DIR      Writable: changes are kept in DIR, which belongs to this server alone. Default: read-only.\n"
    "timeout=SECONDS  How long a read waits for a daemon that is away before it is an I/O error. Default: 30.";

Status Parameters::set(std::string_view name, std::string_view value) {
  if (value.empty()) return fail(ErrorKind::kInvalid, std::string(name) + "= needs a value");
  if (name == "socket") {
    socket = absolute(value);
  } else if (name == "image") {
    image = value;
  } else if (name == "file") {
    file = absolute(value);
  } else if (name == "overlay") {
    overlay = absolute(value);
  } else if (name == "timeout") {
    TRY_ASSIGN(daemon_timeout, parse_timeout(value));
  } else {
    return fail(ErrorKind::kInvalid, "unknown parameter '" + std::string(name) + "'");
  }
  return {};
}

Status Parameters::check() const {
  if (image.empty() == file.empty()) return fail(ErrorKind::kInvalid, "give either image= or file=");
  if (!image.empty() && socket.empty()) return fail(ErrorKind::kInvalid, "image= needs socket=, the daemon's chunk socket");
  return {};
}

}  // namespace ramet::nbd
