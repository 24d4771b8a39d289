#include "cli/places.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include <boost/json.hpp>

#include "base/file.h"

namespace ramet::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInstalled = "/usr/libexec/ramet";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

fs::path own_folder() {
  std::error_code ec;
  return fs::read_symlink("/proc/self/exe", ec).parent_path();
}

std::vector<fs::path> own_places() {
  std::vector<fs::path> folders = {own_folder(), kInstalled};
  if (const std::string libexec = environment("RAMET_LIBEXEC"); !libexec.empty()) folders.emplace_back(libexec);
  return folders;
}

bool is_executable(const fs::path& path) { return ::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path); }

// The URL `machine start` wrote, when its process still lives.
std::optional<std::string> machine_url() {
  const Result<std::string> text = read_file(state_dir() + "/machine/machine.json", 1 << 20);
  if (!text) return std::nullopt;
  boost::json::error_code ec;
  const boost::json::value document = boost::json::parse(*text, ec);
  if (ec || !document.is_object()) return std::nullopt;
  const boost::json::value* url = document.get_object().if_contains("url");
  const boost::json::value* pid = document.get_object().if_contains("pid");
  if (url == nullptr || !url->is_string()) return std::nullopt;
  if (pid != nullptr && pid->is_int64() && !fs::exists("/proc/" + std::to_string(pid->get_int64()))) return std::nullopt;
  return std::string(url->get_string());
}

}  // namespace

std::string state_dir() {
  const std::string set = environment("RAMET_STATE");
  if (!set.empty()) return set;
  if (::geteuid() == 0) return "/var/lib/ramet";
  const std::string xdg = environment("XDG_DATA_HOME");
  return (xdg.empty() ? environment("HOME") + "/.local/share" : xdg) + "/ramet";
}

std::string runtime_dir() {
  const std::string set = environment("RAMET_RUNTIME");
  if (!set.empty()) return set;
  if (::geteuid() == 0) return "/run/ramet";
  const std::string xdg = environment("XDG_RUNTIME_DIR");
  return xdg.empty() ? "/tmp/ramet-" + std::to_string(::geteuid()) : xdg + "/ramet";
}

Result<Endpoint> pick_server(const std::string& url) {
  const std::string chosen = url.empty() ? environment("RAMET_URL") : url;
  if (!chosen.empty()) return parse_url(chosen);
  Endpoint local;
  local.unix_path = runtime_dir() + "/rametd.sock";
  if (connect_to(local)) return local;
  if (const std::optional<std::string> machine = machine_url()) return parse_url(*machine);
  return tl::unexpected(Error(ErrorKind::kUnavailable, "no server: nobody listens on " + local.unix_path +
                                                           ", and no machine is running (" + state_dir() +
                                                           "/machine/machine.json)")
                            .with_hint("Start one with `ramet machine start`, or name one with --url or RAMET_URL."));
}

Result<std::string> find_helper(const std::string& relative) {
  std::vector<fs::path> roots;
  if (const std::string libexec = environment("RAMET_LIBEXEC"); !libexec.empty()) roots.emplace_back(libexec);
  for (fs::path folder = own_folder(); folder.has_relative_path(); folder = folder.parent_path()) roots.push_back(folder);
  roots.emplace_back(kInstalled);
  for (const fs::path& root : roots)
    if (is_executable(root / relative)) return (root / relative).string();
  return tl::unexpected(Error(ErrorKind::kUnsupported, "the helper `" + relative + "` was not found")
                            .with_hint("Set RAMET_LIBEXEC to Ramet's source tree, or install it to /usr/libexec/ramet."));
}

std::optional<std::string> find_module(const std::string& name) {
  for (const fs::path& folder : own_places())
    if (fs::is_regular_file(folder / name)) return (folder / name).string();
  return std::nullopt;
}

std::optional<std::string> find_program(const std::string& name) {
  std::vector<fs::path> folders = own_places();
  std::string path = environment("PATH");
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin) folders.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const fs::path& folder : folders)
    if (is_executable(folder / name)) return (folder / name).string();
  return std::nullopt;
}

}  // namespace ramet::cli
