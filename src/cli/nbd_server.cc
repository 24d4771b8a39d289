#include "cli/nbd_server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "cli/places.h"

namespace ramet::cli {
namespace {

constexpr const char* kPlugin = "nbdkit-ramet-plugin.so";
constexpr Milliseconds kAskAgain{20};

Result<std::string> find_plugin() {
  if (const std::optional<std::string> path = find_module(kPlugin)) return *path;
  return tl::unexpected(
      Error(ErrorKind::kUnsupported, std::string("the plugin ") + kPlugin + " was not found")
          .with_hint("It belongs beside this program or into /usr/libexec/ramet; RAMET_LIBEXEC names another place."));
}

// nbdkit does not replace a socket that a killed server left.
Status remove_dead_socket(const Endpoint& endpoint) {
  struct stat st;
  if (::lstat(endpoint.unix_path.c_str(), &st) < 0) return {};
  if (!S_ISSOCK(st.st_mode)) return fail(ErrorKind::kExists, endpoint.unix_path + " exists and is not a socket");
  if (connect_to(endpoint)) return fail(ErrorKind::kConflict, "somebody listens on " + endpoint.unix_path + " already");
  if (::unlink(endpoint.unix_path.c_str()) < 0) return fail_errno("remove " + endpoint.unix_path);
  return {};
}

std::vector<std::string> command_line(const std::string& nbdkit, const std::string& plugin, const Endpoint& endpoint,
                                      const NbdServerOptions& options) {
  std::vector<std::string> words = {nbdkit, "--foreground", "--exit-with-parent"};
  if (endpoint.unix_path.empty())
    words.insert(words.end(), {"--ipaddr", endpoint.host, "--port", std::to_string(endpoint.port)});
  else
    words.insert(words.end(), {"--unix", endpoint.unix_path});
  words.insert(words.end(), {plugin, "image=" + options.image, "socket=" + options.daemon_socket,
                             "timeout=" + std::to_string(options.timeout_s)});
  if (!options.overlay.empty()) words.push_back("overlay=" + options.overlay);
  return words;
}

Error ended_at_once(const std::string& image) {
  return Error(ErrorKind::kIo, "the NBD server of image `" + image + "` did not start").with_hint("The lines above say why.");
}

}  // namespace

Result<std::string> need_program(const std::string& name, const std::string& package) {
  if (const std::optional<std::string> path = find_program(name)) return *path;
  return tl::unexpected(
      Error(ErrorKind::kUnsupported, "`" + name + "` is not installed").with_hint("Install it: apt install " + package));
}

Result<PrivateDirectory> PrivateDirectory::make() {
  TRY(make_directories(runtime_dir(), 0700));
  std::string path = runtime_dir() + "/nbd-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return fail_errno("make a directory like " + path);
  return PrivateDirectory(std::move(path));
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<NbdServer> NbdServer::start(const NbdServerOptions& options, Interrupts& interrupts) {
  TRY_ASSIGN(const std::string nbdkit, need_program("nbdkit", "nbdkit"));
  TRY_ASSIGN(const std::string plugin, find_plugin());
  TRY_ASSIGN(PrivateDirectory directory, PrivateDirectory::make());
  Endpoint endpoint;
  if (options.port) {
    endpoint.host = "127.0.0.1";
    endpoint.port = *options.port;
  } else {
    endpoint.unix_path =
        options.socket.empty() ? directory.path() + "/nbd.sock" : std::filesystem::absolute(options.socket).string();
    TRY(remove_dead_socket(endpoint));
  }
  TRY_ASSIGN(const UniqueFd nothing, open_file("/dev/null", O_RDWR));
  SpawnOptions spawn;
  spawn.argv = command_line(nbdkit, plugin, endpoint, options);
  spawn.stdin_fd = nothing.get();
  spawn.stdout_fd = STDERR_FILENO;
  TRY_ASSIGN(ChildProcess process, ChildProcess::spawn(spawn));
  NbdServer server(std::move(directory), std::move(endpoint), std::move(process));
  const Status serves = server.wait_until_it_serves(interrupts);
  if (!serves && serves.error().kind() == ErrorKind::kIo) return tl::unexpected(ended_at_once(options.image));
  if (!serves) return tl::unexpected(serves.error());
  return server;
}

// It listens before it has the disk, and greets a client only then.
Status NbdServer::wait_until_it_serves(Interrupts& interrupts) {
  UniqueFd greeting;
  for (;;) {
    if (!greeting) {
      Result<UniqueFd> connected = connect_to(endpoint_);
      if (connected) greeting = std::move(*connected);
    }
    const Deadline deadline = greeting ? Deadline::max() : deadline_after(kAskAgain);
    TRY_ASSIGN(const Interrupts::Event event, interrupts.wait(process_, greeting.get(), deadline));
    if (event == Interrupts::Event::kReadable) {
      char first;
      if (::read(greeting.get(), &first, 1) == 1) return {};
      return fail(ErrorKind::kIo, "no greeting");
    }
    if (event == Interrupts::Event::kChildEnded) return fail(ErrorKind::kIo, "ended");
    if (event == Interrupts::Event::kSignal) return fail(ErrorKind::kCancelled, "interrupted");
  }
}

std::string NbdServer::uri() const {
  if (!endpoint_.unix_path.empty()) return "nbd+unix:///?socket=" + endpoint_.unix_path;
  return "nbd://" + endpoint_.host + ":" + std::to_string(endpoint_.port);
}

}  // namespace ramet::cli
