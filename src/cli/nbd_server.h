// cli/nbd_server.h - an nbdkit with Ramet's plugin, started by this command, which serves when start() returns and ends with
// us. Not here: what is printed, who uses it. Thread: one. Owner: the command.
#pragma once

#include <optional>
#include <string>

#include "base/child_process.h"
#include "cli/http_client.h"
#include "cli/interrupts.h"

namespace ramet::cli {

struct NbdServerOptions {
  std::string image;
  std::string daemon_socket;     // where the plugin asks for blocks
  std::string overlay;           // directory; empty: read-only
  std::string socket;            // unix socket to listen on; empty: one in a directory of its own
  std::optional<uint16_t> port;  // or a port of the loopback interface
  uint64_t timeout_s = 30;       // how long reads wait for a daemon that is away
};

// A directory in the runtime directory that goes with its owner.
class PrivateDirectory {
 public:
  static Result<PrivateDirectory> make();
  PrivateDirectory(PrivateDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  PrivateDirectory& operator=(PrivateDirectory&&) = delete;
  ~PrivateDirectory();
  const std::string& path() const { return path_; }

 private:
  explicit PrivateDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

class NbdServer {
 public:
  // Errors: kUnsupported (nbdkit or the plugin is missing), kConflict (somebody listens there), kCancelled (interrupted),
  // kIo (it ended at once; it said why on standard error).
  static Result<NbdServer> start(const NbdServerOptions& options, Interrupts& interrupts);

  const Endpoint& endpoint() const { return endpoint_; }
  std::string uri() const;
  ChildProcess& process() { return process_; }

 private:
  NbdServer(PrivateDirectory directory, Endpoint endpoint, ChildProcess process)
      : directory_(std::move(directory)), endpoint_(std::move(endpoint)), process_(std::move(process)) {}
  Status wait_until_it_serves(Interrupts& interrupts);

  PrivateDirectory directory_;
  Endpoint endpoint_;
  ChildProcess process_;
};

// The program, or an error that names the Debian package to install.
Result<std::string> need_program(const std::string& name, const std::string& package);

}  // namespace ramet::cli
