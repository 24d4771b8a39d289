#include "cli/doctor.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>

#include "base/child_process.h"
#include "base/file.h"
#include "cli/api_client.h"
#include "cli/commands.h"
#include "cli/places.h"
#include "cli/text.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;

// What a program printed on stdout, at most 64 KiB, when it ended in time.
Result<std::string> output_of(const std::vector<std::string>& argv, Milliseconds limit) {
  TRY_ASSIGN(Pipe pipe, make_pipe());
  SpawnOptions spawn;
  spawn.argv = argv;
  spawn.stdout_fd = pipe.write_end.get();
  TRY_ASSIGN(const UniqueFd null, open_file("/dev/null", O_RDWR));
  spawn.stderr_fd = null.get();
  spawn.stdin_fd = null.get();
  TRY_ASSIGN(ChildProcess child, ChildProcess::spawn(spawn));
  pipe.write_end.reset();
  if (!child.wait(deadline_after(limit)))
    return fail(ErrorKind::kTimeout, argv.front() + " did not end within " + std::to_string(limit.count()) + " ms");
  std::string text(64 * 1024, '\0');
  const ssize_t n = ::read(pipe.read_end.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

std::string json_text(const json::value& v, std::string_view name) {
  const json::value* field = v.is_object() ? v.get_object().if_contains(json::string_view(name.data(), name.size())) : nullptr;
  return field != nullptr && field->is_string() ? std::string(field->get_string()) : std::string();
}

// "Linux version"-like text -> the first number in it.
int first_number(const std::string& text) {
  const size_t at = text.find_first_of("0123456789");
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at);
}

constexpr const char* kEmulate = "`ramet machine start` emulates a machine instead: slower, but everything works.";

// The nearest directory above that exists.
std::string existing_parent(std::string path) {
  std::error_code ec;
  while (path.size() > 1 && !std::filesystem::is_directory(path, ec)) path = std::filesystem::path(path).parent_path();
  return path.empty() ? "/" : path;
}

Finding check_server(Session& session) {
  const Result<const ApiClient*> api = session.api();
  if (!api) return {"server", Level::kWarn, api.error().message(), api.error().hint()};
  const std::string url = (*api)->endpoint().url();
  const Result<json::value> health = (*api)->call("GET", "/v1/health");
  if (!health) return {"server", Level::kFail, url + ": " + health.error().message(), health.error().hint()};
  const std::string status = json_text(*health, "status");
  const std::string text = url + " answers: version " + json_text(*health, "version") + ", " + status;
  if (status == "ok") return {"server", Level::kOk, text, ""};
  return {"server", Level::kWarn, text + ": " + json_text(*health, "detail"), "Look at the daemon's log."};
}

// What the server keeps; nothing when it does not say.
std::optional<Finding> check_store(Session& session) {
  const Result<const ApiClient*> api = session.api();
  if (!api) return std::nullopt;
  const Result<json::value> host = (*api)->call("GET", "/v1/host");
  if (!host || !host->is_object() || !host->as_object().contains("store")) return std::nullopt;
  const json::value& store = host->at("store");
  const auto bytes = [](const json::value& object, const char* field) {
    return format_bytes(object.at(field).to_number<uint64_t>());
  };
  const uint64_t failed = store.at("reads").at("failed").to_number<uint64_t>();
  const std::string text = std::to_string(store.at("images").to_number<uint64_t>()) + " images and " +
                           std::to_string(store.at("template_disks").to_number<uint64_t>()) + " disks of templates in " +
                           bytes(store, "pack_bytes") + "; cache " + bytes(store.at("cache"), "bytes") + " of " +
                           bytes(store.at("cache"), "max_bytes");
  const std::string trouble(store.at("remote").at("trouble").as_string());
  if (!trouble.empty())
    return Finding{"store", Level::kWarn, text + "; its remote tier does not work: " + trouble,
                   "new packs wait here until it works again; see --remote-endpoint in `rametd --help`"};
  if (failed == 0) return Finding{"store", Level::kOk, text, ""};
  return Finding{"store", Level::kWarn, text + "; " + std::to_string(failed) + " reads failed",
                 "Look at the daemon's log for what is damaged."};
}

const char* level_name(Level level) {
  switch (level) {
    case Level::kOk: return "ok";
    case Level::kWarn: return "warn";
    case Level::kFail: return "fail";
  }
  return "fail";
}

}  // namespace

Finding check_kvm(bool* usable) {
  *usable = false;
  if (::access("/dev/kvm", F_OK) != 0) return {"kvm", Level::kWarn, "there is no /dev/kvm", kEmulate};
  if (::access("/dev/kvm", R_OK | W_OK) != 0)
    return {"kvm", Level::kWarn, "/dev/kvm is there but you may not open it",
            "Join the group `kvm`, or run as root. " + std::string(kEmulate)};
  const std::optional<std::string> vmm = find_program("ramet-vmm");
  if (!vmm)
    return {"kvm", Level::kWarn, "/dev/kvm opens, but ramet-vmm was not found to try it",
            "Build or install ramet-vmm beside ramet."};
  const Result<std::string> text = output_of({*vmm, "--probe-kvm", "--json"}, Milliseconds(30'000));
  if (!text) return {"kvm", Level::kFail, "the probe failed: " + text.error().message(), kEmulate};
  const Result<json::value> found = parse_json(*text);
  if (!found || !found->is_object()) return {"kvm", Level::kFail, "the probe printed no JSON", kEmulate};
  const json::value* field = found->get_object().if_contains("usable");
  *usable = field != nullptr && field->is_bool() && field->get_bool();
  std::string reason = json_text(*found, "reason");
  if (reason.empty()) reason = json_text(*found, "detail");
  if (*usable) return {"kvm", Level::kOk, reason.empty() ? "usable" : reason, ""};
  return {"kvm", Level::kWarn, "not usable: " + reason, kEmulate};
}

Finding check_qemu(bool kvm_usable) {
  const std::optional<std::string> qemu = find_program("qemu-system-x86_64");
  const Level missing = kvm_usable ? Level::kOk : Level::kFail;
  if (!qemu)
    return {"qemu", missing, kvm_usable ? "not installed, not needed" : "qemu-system-x86_64 is not installed",
            kvm_usable ? "" : "Install QEMU 10 (`tools/bootstrap`; on Debian 12 from backports)."};
  const Result<std::string> text = output_of({*qemu, "--version"}, Milliseconds(10'000));
  const std::string line = text ? text->substr(0, text->find('\n')) : text.error().message();
  constexpr int kNeeded = 10;  // 7.2 crashes inner guests
  if (text && first_number(line) >= kNeeded) return {"qemu", Level::kOk, line, ""};
  return {"qemu", missing, line, kvm_usable ? "" : "The emulated host needs QEMU 10 or newer; Debian 12 has it in backports."};
}

Finding check_cgroup(const std::string& mounts, const std::string& root) {
  std::istringstream lines(mounts);
  std::string line, options;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string device, where, type, opts;
    words >> device >> where >> type >> opts;
    if (type == "cgroup2" && where == root) options = opts;
  }
  if (options.empty())
    return {"cgroup", Level::kWarn, "cgroup v2 is not mounted at " + root,
            "Without it sandboxes have no memory limit. Mount it: mount -t cgroup2 none " + root};
  const Result<std::string> controllers = read_file(root + "/cgroup.controllers", 4096);
  std::string list = controllers ? *controllers : "";
  while (list.ends_with('\n')) list.pop_back();
  std::string missing;
  for (const char* wanted : {"cpu", "io", "memory", "pids"})
    if ((" " + list + " ").find(" " + std::string(wanted) + " ") == std::string::npos)
      missing += (missing.empty() ? "" : ", ") + std::string(wanted);
  if (!missing.empty())
    return {"cgroup", Level::kWarn, "v2, controllers missing: " + missing, "Limits of these kinds are not enforced here."};
  if (("," + options + ",").find(",favordynmods,") == std::string::npos)
    return {"cgroup", Level::kWarn, "v2 with " + list + ", without favordynmods",
            "Forks are 10 to 40 ms slower than they could be: mount -o remount,favordynmods " + root};
  return {"cgroup", Level::kOk, "v2 with " + list + ", favordynmods", ""};
}

Finding check_memory(const std::string& meminfo) {
  std::istringstream lines(meminfo);
  std::string name, unit;
  uint64_t kib = 0, total = 0, available = 0;
  while (lines >> name >> kib && std::getline(lines, unit)) {
    if (name == "MemTotal:") total = kib;
    if (name == "MemAvailable:") available = kib;
  }
  constexpr uint64_t kComfortKib = 2 << 20;
  const std::string text = format_bytes(available << 10) + " of " + format_bytes(total << 10) + " available";
  if (available >= kComfortKib) return {"memory", Level::kOk, text, ""};
  return {"memory", Level::kWarn, text, "Less than 2 GiB is little for sandboxes, and too little for an emulated host."};
}

Finding check_file_system(const std::string& directory) {
  const std::string folder = existing_parent(directory);
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0)
    return {"state", Level::kFail, "cannot look at " + folder, "Choose another directory with RAMET_STATE."};
  const std::string where = directory + " (" + format_bytes(static_cast<uint64_t>(space.f_bavail) * space.f_frsize) + " free)";
  const UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd)
    return {"state", errno == EACCES ? Level::kWarn : Level::kFail,
            where + ": " + (errno == EACCES ? "you may not write there" : "its file system has no O_TMPFILE"),
            errno == EACCES ? "Run as the daemon's user, or set RAMET_STATE." : "Put the state on ext4, xfs or btrfs."};
  // Sparse: 64 MiB long, one block written, the rest must take nothing.
  constexpr off_t kLength = 64 << 20;
  struct stat st {};
  const bool sparse = ::ftruncate(fd.get(), kLength) == 0 && ::pwrite(fd.get(), "x", 1, 0) == 1 && ::fdatasync(fd.get()) == 0 &&
                      ::fstat(fd.get(), &st) == 0 && st.st_blocks * 512 < kLength / 2;
  if (!sparse) return {"state", Level::kFail, where + ": files are not sparse", "Put the state on ext4, xfs or btrfs."};
  int flags = 0;
  const bool has_flags = ::ioctl(fd.get(), FS_IOC_GETFLAGS, &flags) == 0;
  int immutable = flags | FS_IMMUTABLE_FL;
  const bool can = has_flags && ::ioctl(fd.get(), FS_IOC_SETFLAGS, &immutable) == 0;
  if (can) ::ioctl(fd.get(), FS_IOC_SETFLAGS, &flags);
  if (can) return {"state", Level::kOk, where + ": O_TMPFILE, sparse, immutable files", ""};
  return {"state", Level::kWarn, where + ": files cannot be made immutable" + (::geteuid() == 0 ? "" : " (only root may)"),
          "A hostile monitor could write to a disk state it shares with its forks. Use ext4, xfs or btrfs and run the daemon "
          "as root."};
}

Finding check_userfaultfd() {
  const UniqueFd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  if (device) return {"userfaultfd", Level::kOk, "/dev/userfaultfd opens", ""};
  const UniqueFd full(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  if (full) return {"userfaultfd", Level::kOk, "allowed, user and kernel faults", ""};
  return {"userfaultfd", Level::kWarn, "not permitted to this user",
          "Needed later to load memory on demand: give access to /dev/userfaultfd, or run the daemon as root."};
}

Result<int> cmd_doctor(Session& session) {
  bool kvm_usable = false;
  std::vector<Finding> findings;
  findings.push_back(check_kvm(&kvm_usable));
  findings.push_back(check_qemu(kvm_usable));
  findings.push_back(check_cgroup(read_file("/proc/mounts").value_or(""), "/sys/fs/cgroup"));
  findings.push_back(check_memory(read_file("/proc/meminfo").value_or("")));
  findings.push_back(check_file_system(state_dir()));
  findings.push_back(check_userfaultfd());
  findings.push_back(check_server(session));
  if (std::optional<Finding> store = check_store(session)) findings.push_back(*std::move(store));

  bool failed = false;
  json::array list;
  for (const Finding& f : findings) {
    failed = failed || f.level == Level::kFail;
    list.push_back(json::object{{"name", f.name}, {"level", level_name(f.level)}, {"text", f.text}, {"hint", f.hint}});
  }
  if (session.json) {
    session.print_json(json::object{{"findings", list}, {"ok", !failed}});
    return failed ? 1 : 0;
  }
  const bool colours = session.colours_out();
  for (const Finding& f : findings) {
    const Colour colour = f.level == Level::kOk ? Colour::kGreen : f.level == Level::kWarn ? Colour::kYellow : Colour::kRed;
    char mark[8], name[16];
    snprintf(mark, sizeof mark, "%-4s", level_name(f.level));
    snprintf(name, sizeof name, "%-11s", f.name.c_str());
    printf("%s  %s  %s\n", painted(mark, colour, colours).c_str(), name, printable(f.text).c_str());
    if (!f.hint.empty()) printf("%19s%s\n", "", painted(f.hint, Colour::kDim, colours).c_str());
  }
  return failed ? 1 : 0;
}

}  // namespace ramet::cli
