// image_server - the half of the daemon that serves disks, without machines: the images of a store behind a chunk socket. So
// that benchmarks of its readers need nothing else. Images come from `ramet-store import`.
//
//   image_server --store DIRECTORY --socket PATH [--cache-mib N]      until SIGTERM; prints "ready"
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/log.h"
#include "host/images/images.h"

int main(int argc, char** argv) {
  using namespace ramet;
  host::Images::Options options;
  uint64_t cache_mib = 1024;
  CLI::App app("Serves the images of a store on a chunk socket");
  app.add_option("--store", options.store.directory)->required();
  app.add_option("--socket", options.socket)->required();
  app.add_option("--cache-mib", cache_mib);
  CLI11_PARSE(app, argc, argv);
  options.store.cache_bytes = cache_mib << 20;

  ::signal(SIGPIPE, SIG_IGN);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  log_init("image_server", "", LogLevel::kWarn);
  const Result<std::unique_ptr<host::Images>> images = host::Images::open(std::move(options));
  if (!images) {
    log_error(images.error().to_string());
    return 1;
  }
  puts("ready");
  fflush(stdout);
  int signal = 0;
  sigwait(&stop, &signal);
  return 0;
}
