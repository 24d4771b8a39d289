// Disks over NBD: programs of Debian do the work (nbdkit, nbdfuse), our plugin asks the daemon for the blocks, and these
// commands start, watch and end them.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/nbd_server.h"
#include "cli/places.h"
#include "cli/text.h"

namespace ramet::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::chrono::seconds kPatience{1};  // until we say what we wait for, and between two askings
constexpr std::chrono::seconds kLongEnd{30};  // for a server without clients

// Beside the daemon's API socket, as blocks do not go over HTTP; of a daemon that has the image.
Result<std::string> find_chunk_socket(Session& session, const std::string& image) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  const std::string& api_socket = api->endpoint().unix_path;
  const std::string folder = api_socket.empty() ? runtime_dir() : fs::path(api_socket).parent_path().string();
  const std::string path = folder + "/chunk.sock";
  if (::access(path.c_str(), R_OK | W_OK) == 0) {
    TRY(api->call("GET", "/v1/images/" + percent_encode(image)));
    return path;
  }
  return tl::unexpected(
      Error(ErrorKind::kUnavailable, "no chunk socket of a daemon at " + path)
          .with_hint(
              "Disks are served on the computer where rametd runs; --daemon-socket names its socket. In an emulated host: "
              "`ramet machine exec -- ramet disk serve IMAGE`."));
}

Result<NbdServerOptions> server_options(Session& session, const DiskOptions& options) {
  NbdServerOptions server;
  server.image = options.image;
  server.overlay = options.writable.empty() ? "" : fs::absolute(options.writable).string();
  server.socket = options.socket;
  server.port = options.port;
  TRY_ASSIGN(server.timeout_s, parse_duration(options.timeout));
  server.daemon_socket = options.daemon_socket;
  if (server.daemon_socket.empty()) {
    TRY_ASSIGN(server.daemon_socket, find_chunk_socket(session, options.image));
  }
  return server;
}

// Until the process ends. The first interruption asks it to, and goes on asking; the next one makes it.
struct Ending {
  std::function<void()> ask, force;
  std::string waiting_for;  // said when asking did not help at once
};
Result<int> run_until_interrupted(Session& session, ChildProcess& process, Interrupts& interrupts, const Ending& ending) {
  int asked = 0;
  for (;;) {
    const Deadline deadline = asked > 0 ? deadline_after(kPatience) : Deadline::max();
    TRY_ASSIGN(const Interrupts::Event event, interrupts.wait(process, -1, deadline));
    if (event == Interrupts::Event::kChildEnded) break;
    if (event == Interrupts::Event::kSignal && asked > 0) {
      ending.force();
      continue;
    }
    if (asked++ == 1) session.note("waiting for " + ending.waiting_for + "; interrupt once more to end it at once");
    ending.ask();
  }
  const std::optional<int> status = process.wait(Deadline::max());
  const bool fine = asked > 0 || (status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
  if (!fine) return fail(ErrorKind::kIo, "the program that did the work ended by itself");
  return 0;
}

void stop(ChildProcess& process) {
  (void)process.signal(SIGTERM);
  if (!process.wait(deadline_after(kLongEnd))) (void)process.signal(SIGKILL);
}

void print_served(const Session& session, const DiskOptions& options, NbdServer& server) {
  if (session.json) {
    json::object row{{"uri", server.uri()},
                     {"image", options.image},
                     {"writable", !options.writable.empty()},
                     {"pid", server.process().pid()}};
    if (options.port)
      row["port"] = *options.port;
    else
      row["socket"] = server.endpoint().unix_path;
    session.print_json(row);
  } else {
    printf("%s\n", server.uri().c_str());
  }
  fflush(stdout);
  session.note("serving image " + options.image +
               (options.writable.empty() ? ", read-only" : ", changes go to " + options.writable) + "; interrupt to end");
}

// The file that shows the disk: TARGET, or TARGET/nbd if that is a directory. We make it when nothing is there, and remove it
// then.
class Target {
 public:
  static Result<Target> prepare(const std::string& path) {
    struct stat st;
    if (::stat(path.c_str(), &st) == 0) {
      if (S_ISDIR(st.st_mode)) return Target(path, path + "/nbd", false);
      if (S_ISREG(st.st_mode)) return Target(path, path, false);
      return fail(ErrorKind::kInvalid, path + " is neither a directory nor a file");
    }
    TRY(open_file(path, O_CREAT | O_EXCL | O_WRONLY, 0600));
    return Target(path, path, true);
  }
  Target(Target&& other) noexcept
      : mount_point(other.mount_point), file(other.file), made_(std::exchange(other.made_, false)) {}
  Target& operator=(Target&&) = delete;
  ~Target() {
    if (made_) ::unlink(file.c_str());
  }
  const std::string mount_point, file;

 private:
  Target(std::string point, std::string shown, bool made)
      : mount_point(std::move(point)), file(std::move(shown)), made_(made) {}
  bool made_;
};

Result<ChildProcess> start_nbdfuse(const std::string& nbdfuse, const Target& target, const NbdServer& server, bool writable,
                                   const std::string& pid_file) {
  SpawnOptions spawn;
  spawn.argv = {nbdfuse, "--pidfile", pid_file, "--connections", "4"};
  if (!writable) spawn.argv.push_back("--readonly");
  spawn.argv.insert(spawn.argv.end(), {target.mount_point, server.uri()});
  spawn.stdout_fd = STDERR_FILENO;
  return ChildProcess::spawn(spawn);
}

// nbdfuse writes its pid when the file can be used.
Status wait_for_mount(ChildProcess& process, Interrupts& interrupts, const std::string& pid_file) {
  while (::access(pid_file.c_str(), F_OK) != 0) {
    TRY_ASSIGN(const Interrupts::Event event, interrupts.wait(process, -1, deadline_after(Milliseconds(20))));
    if (event == Interrupts::Event::kSignal) return fail(ErrorKind::kCancelled, "interrupted");
    if (event == Interrupts::Event::kChildEnded)
      return tl::unexpected(Error(ErrorKind::kIo, "nbdfuse did not mount the disk").with_hint("The lines above say why."));
  }
  return {};
}

// Nothing happens while somebody uses it. What fusermount says of that is said better by us.
void unmount(const std::string& fusermount, const std::string& mount_point) {
  const Result<UniqueFd> nothing = open_file("/dev/null", O_RDWR);
  SpawnOptions spawn;
  spawn.argv = {fusermount, "-u", mount_point};
  if (nothing) spawn.stderr_fd = nothing->get();
  Result<ChildProcess> process = ChildProcess::spawn(spawn);
  if (process) (void)process->wait(Deadline::max());
}

}  // namespace

Result<int> cmd_disk_serve(Session& session, const DiskOptions& options) {
  TRY_ASSIGN(Interrupts interrupts, Interrupts::begin());
  TRY_ASSIGN(const NbdServerOptions wanted, server_options(session, options));
  TRY_ASSIGN(NbdServer server, NbdServer::start(wanted, interrupts));
  print_served(session, options, server);
  ChildProcess& process = server.process();
  return run_until_interrupted(
      session, process, interrupts,
      {[&] { (void)process.signal(SIGTERM); }, [&] { (void)process.signal(SIGKILL); }, "clients that are connected"});
}

Result<int> cmd_disk_mount(Session& session, const DiskOptions& options) {
  TRY_ASSIGN(const std::string nbdfuse, need_program("nbdfuse", "libnbd-bin"));
  TRY_ASSIGN(const std::string fusermount, need_program("fusermount3", "fuse3"));
  TRY_ASSIGN(Interrupts interrupts, Interrupts::begin());
  TRY_ASSIGN(const Target target, Target::prepare(options.target));
  TRY_ASSIGN(const NbdServerOptions wanted, server_options(session, options));
  TRY_ASSIGN(NbdServer server, NbdServer::start(wanted, interrupts));
  TRY_ASSIGN(const PrivateDirectory directory, PrivateDirectory::make());
  const std::string pid_file = directory.path() + "/nbdfuse.pid";
  TRY_ASSIGN(ChildProcess fuse, start_nbdfuse(nbdfuse, target, server, !options.writable.empty(), pid_file));
  TRY(wait_for_mount(fuse, interrupts, pid_file));
  if (session.json)
    session.print_json(json::object{{"file", target.file}, {"image", options.image}, {"writable", !options.writable.empty()}});
  else
    printf("%s\n", target.file.c_str());
  fflush(stdout);
  session.note("the disk of image " + options.image + " is there; interrupt to unmount");
  const Result<int> status = run_until_interrupted(session, fuse, interrupts,
                                                   {[&] { unmount(fusermount, target.mount_point); },
                                                    [&] { (void)fuse.signal(SIGTERM); }, "programs that use " + target.file});
  stop(server.process());
  return status;
}

}  // namespace ramet::cli
