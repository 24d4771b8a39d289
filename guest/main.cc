// ramet-guest - init and agent inside a guest. As process 1 it makes the machine and serves it until it is switched off;
// with --serve-unix it is only the agent, on a socket of the host, for tests.
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string_view>

#include "base/log.h"
#include "base/socket.h"
#include "cgroup.h"
#include "init/init.h"
#include "service.h"

namespace ramet::guest {
namespace {

// A stream frees and takes the same few hundred KiB over and over. Given back to the kernel in between, every piece of 64 KiB
// costs six page faults, the most expensive thing there is where the guest's page tables are emulated.
void keep_a_warm_heap() {
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 2 << 20);
}

int serve_unix(const char* path, const char* cgroup) {
  block_service_signals();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Result<UniqueFd> listener = listen_unix(path, SOCK_STREAM, 128);
  if (!listener) {
    log_error(listener.error().to_string());
    return 1;
  }
  std::optional<UserTasks> users;
  if (cgroup) {
    Result<UserTasks> opened = UserTasks::open(cgroup);
    if (!opened) {
      log_error(opened.error().to_string());
      return 1;
    }
    users = std::move(*opened);
  }
  ServiceOptions options;
  options.users = users ? &*users : nullptr;
  options.on_listening = [] {
    std::puts("ramet-guest: ready");
    std::fflush(stdout);
  };
  run_service(std::move(*listener), std::move(options));
  if (users) (void)users->kill_all().has_value();
  return 0;
}

int usage() {
  std::fputs(
      "usage: ramet-guest --serve-unix PATH [--cgroup DIR]   serve the agent protocol on a unix socket, for tests\n"
      "As process 1 of a guest it takes no arguments.\n",
      stderr);
  return 2;
}

}  // namespace
}  // namespace ramet::guest

int main(int argc, char** argv) {
  using namespace ramet::guest;
  ramet::log_init("ramet-guest", "", ramet::LogLevel::kInfo);
  ::umask(022);
  keep_a_warm_heap();
  if (::getpid() == 1 && argc < 2) run_init();
  const char* path = nullptr;
  const char* cgroup = nullptr;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--serve-unix")
      path = argv[i + 1];
    else if (name == "--cgroup")
      cgroup = argv[i + 1];
    else
      return usage();
  }
  return path ? serve_unix(path, cgroup) : usage();
}
