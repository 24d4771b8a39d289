#include "options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <filesystem>

#ifndef RAMET_VERSION
#define RAMET_VERSION "0.1.0"
#endif

namespace ramet::daemon {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string default_state_dir() {
  if (::geteuid() == 0) return "/var/lib/ramet";
  const std::string xdg = environment("XDG_DATA_HOME");
  return (xdg.empty() ? environment("HOME") + "/.local/share" : xdg) + "/ramet";
}

std::string default_runtime_dir() {
  if (::geteuid() == 0) return "/run/ramet";
  const std::string xdg = environment("XDG_RUNTIME_DIR");
  return (xdg.empty() ? "/tmp/ramet-" + std::to_string(::geteuid()) : xdg + "/ramet");
}

// ramet-vmm beside our own program, else where a package puts it.
std::string default_vmm_program() {
  std::error_code ec;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ec);
  const std::filesystem::path beside = self.parent_path() / "ramet-vmm";
  if (!ec && std::filesystem::exists(beside, ec)) return beside;
  return "/usr/libexec/ramet/ramet-vmm";
}

constexpr const char* kDescription =
    "rametd - the Ramet host daemon\n\n"
    "Runs sandboxes: microVMs with their own Linux kernel that are forked, RAM, processes and disk together, while they run.\n"
    "Clients (`ramet`, any HTTP client) speak to it over RUNTIME/rametd.sock or a loopback port; api/openapi.yaml is the "
    "contract.\n"
    "Sandboxes are processes of their own: they go on when the daemon stops or dies, and it finds them again when it starts.";

constexpr const char* kFooter =
    "Files:\n"
    "  STATE/ramet.db            registry of sandboxes and journal of unfinished steps\n"
    "  STATE/templates/NAME/     template.json, vmlinux, initrd\n"
    "  STATE/store/              disk images, those of templates among them; `ramet-store` shows and verifies them\n"
    "  RUNTIME/rametd.sock       the API (mode 0600)\n"
    "  RUNTIME/chunk.sock        where `ramet disk` reads images (mode 0600)\n"
    "\n"
    "Signals:\n"
    "  SIGTERM, SIGINT           stop: requests in flight get 5 seconds, sandboxes live on\n"
    "\n"
    "Environment:\n"
    "  RAMET_STATE, RAMET_RUNTIME   defaults of --state and --runtime\n"
    "  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN   keys of the remote tier\n"
    "\n"
    "Exit status: 0 stopped by a signal; 1 could not start (the last line on stderr says why); 2 wrong options.\n"
    "\n"
    "Log: one line per event on stderr; every request is a line with its id, status, duration and bytes.\n"
    "\n"
    "Examples:\n"
    "  rametd                                        as root: state in /var/lib/ramet\n"
    "  rametd --listen 127.0.0.1:7080                also on a loopback port\n"
    "  rametd --state ~/ramet --runtime /tmp/ramet   a second daemon of your own\n"
    "  curl --unix-socket /run/ramet/rametd.sock http://localhost/v1/health";

}  // namespace

Parsed parse_command_line(int argc, char** argv) {
  Parsed parsed;
  Options& o = parsed.options;
  o.host.state_dir = default_state_dir();
  o.host.runtime_dir = default_runtime_dir();
  o.host.vmm_program = default_vmm_program();
  o.host.version = RAMET_VERSION;
  uint64_t stop_grace_s = 5;
  int keep_booted_days = 14;
  uint64_t store_interval_s = static_cast<uint64_t>(o.host.store_interval.count()) / 1000;

  CLI::App app{kDescription, "rametd"};
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("rametd ") + RAMET_VERSION);
  app.set_config("--config", "/etc/ramet/rametd.conf", "File of `option = value` lines; options on the command line win");
  app.get_formatter()->column_width(34);
  app.option_defaults()->always_capture_default();

  app.add_option("--state", o.host.state_dir, "Directory of everything that lasts")->envname("RAMET_STATE")->group("Places");
  app.add_option("--runtime", o.host.runtime_dir, "Directory of sockets")->envname("RAMET_RUNTIME")->group("Places");
  app.add_option("--vmm", o.host.vmm_program, "The monitor program, ramet-vmm")->group("Places");
  app.add_option("--kvm", o.host.kvm_device, "The KVM device")->group("Places");
  app.add_option("--cgroup", o.host.cgroup_root, "Where cgroup v2 is mounted")->group("Places");

  app.add_option("--listen", o.listen, "Also listen on this loopback ADDRESS:PORT; may be repeated")->group("API");
  app.add_option("--allow-host", o.allow_hosts, "Accept this name in Host headers on TCP, beside loopback names")->group("API");
  app.add_flag("--allow-remote", o.allow_remote,
               "Let --listen take addresses that are not loopback. The API asks for no password: whoever reaches the port owns "
               "the machine")
      ->group("API");
  app.add_option("--max-connections", o.http.max_connections, "Connections at a time; past it clients get 503")
      ->check(CLI::Range(1, 100000))
      ->group("API");
  app.add_option("--stop-grace", stop_grace_s, "Seconds that requests in flight get when the daemon stops")
      ->check(CLI::Range(0, 3600))
      ->group("API");

  app.add_option("--max-sandboxes", o.host.max_sandboxes, "Sandboxes at a time")->group("Limits");
  app.add_option("--max-children", o.host.max_fork_children, "Children of one fork")
      ->check(CLI::Range(1, 100))
      ->group("Limits");
  app.add_option("--default-ttl", o.host.default_ttl_seconds,
                 "Seconds a sandbox lives when its creator says nothing; 0: until deleted")
      ->group("Limits");
  app.add_option("--family-memory-factor", o.host.family_memory_factor,
                 "Memory limit of a family of forks, in multiples of its template's RAM; 0: none")
      ->group("Limits");
  app.add_option("--memory-reserve-mib", o.host.memory_reserve_mib, "Memory of the host that sandboxes never get")
      ->group("Limits");
  app.add_option("--disk-reserve-mib", o.host.disk_reserve_mib, "Free space of STATE that sandboxes never get")
      ->group("Limits");

  app.add_option("--chunk-cache-mib", o.host.chunk_cache_mib,
                 "Space of STATE for parts of images that are read often, beside what the images need")
      ->group("Images");
  app.add_option("--store-interval", store_interval_s,
                 "Seconds between two looks after the store: space of deleted images is given back, one pack is checked")
      ->check(CLI::Range(1, 86400))
      ->group("Images");
  app.add_option("--prefetch-after", o.host.fill_after_misses,
                 "A part of an image (16 MiB) is fetched whole when so many blocks of it were asked for; 0: never")
      ->envname("RAMET_PREFETCH_AFTER")
      ->check(CLI::Range(0, 1000))
      ->group("Images");

  host::RemoteOptions& remote = o.host.remote;
  app.add_option("--remote-endpoint", remote.endpoint, "https://HOST[:PORT] of an S3-compatible server behind the local packs")
      ->envname("RAMET_REMOTE_ENDPOINT")
      ->group("Remote tier");
  app.add_option("--remote-bucket", remote.bucket, "Its bucket, which must be there")
      ->envname("RAMET_REMOTE_BUCKET")
      ->group("Remote tier");
  app.add_option("--remote-region", remote.region, "Its region")->envname("RAMET_REMOTE_REGION")->group("Remote tier");
  app.add_option("--remote-prefix", remote.prefix, "What keys begin with; one daemon alone has it")
      ->envname("RAMET_REMOTE_PREFIX")
      ->group("Remote tier");
  app.add_option("--remote-local-mib", remote.local_mib, "Space of STATE for packs that the bucket has too; 0: none stays")
      ->envname("RAMET_REMOTE_LOCAL_MIB")
      ->default_str("all")
      ->group("Remote tier");
  remote.access_key = environment("AWS_ACCESS_KEY_ID");
  remote.secret_key = environment("AWS_SECRET_ACCESS_KEY");
  remote.session_token = environment("AWS_SESSION_TOKEN");

  app.add_option("--boot", o.host.eager_templates, "Start this template with the daemon, not at its first create; `*` = all")
      ->group("Templates");
  app.add_option(
         "--keep-booted", keep_booted_days,
         "Days that a booted template stays in the store after its last use, to start from instead of another boot; 0: it "
         "is booted each time")
      ->check(CLI::Range(0, 3650))
      ->group("Templates");

  const std::map<std::string, LogLevel> levels = {
      {"debug", LogLevel::kDebug}, {"info", LogLevel::kInfo}, {"warn", LogLevel::kWarn}, {"error", LogLevel::kError}};
  app.add_option("--log-level", o.log_level, "debug, info, warn or error")
      ->transform(CLI::CheckedTransformer(levels).description(""))
      ->default_str("info")
      ->group("Log");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    parsed.exit_code = app.exit(e) == 0 ? 0 : 2;
  }
  o.host.store_interval = std::chrono::seconds(store_interval_s);
  o.host.keep_booted = std::chrono::hours(24 * keep_booted_days);
  o.http.stop_grace = std::chrono::seconds(stop_grace_s);
  return parsed;
}

}  // namespace ramet::daemon
