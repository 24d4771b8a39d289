#include "commit/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>

#include "base/child_process.h"
#include "base/file.h"
#include "commit/file_tree.h"

namespace ramet::commit {
namespace {

constexpr auto kTick = std::chrono::milliseconds(200);
constexpr size_t kMostSaid = 64u << 10;

Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != name.npos) return name;
  for (const char* directory : {"/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/"})
    if (::access((directory + name).c_str(), X_OK) == 0) return directory + name;
  return tl::unexpected<Error>(Error(ErrorKind::kUnavailable, "the program " + name + " is not installed")
                                   .with_hint("tools/bootstrap says which Debian package has it"));
}

// The last line that says something.
Result<std::string> last_words(int said) {
  TRY_ASSIGN(const uint64_t size, file_size(said));
  std::string text(std::min<uint64_t>(size, kMostSaid), '\0');
  TRY(pread_exact(said, std::as_writable_bytes(std::span(text)), size - text.size()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t line = text.rfind('\n');
  return shown(line == text.npos ? text : text.substr(line + 1));
}

Status judge(const std::string& program, int status, int said) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  TRY_ASSIGN(const std::string words, last_words(said));
  const bool no_space = words.find("No space left") != words.npos || words.find("File too large") != words.npos ||
                        (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
  const std::string how = WIFSIGNALED(status) ? "was ended by signal " + std::to_string(WTERMSIG(status))
                                              : "failed with status " + std::to_string(WEXITSTATUS(status));
  return fail(no_space ? ErrorKind::kNoSpace : ErrorKind::kInvalid, program + " " + how + (words.empty() ? "" : ": " + words));
}

}  // namespace

Result<std::string> own_program(const std::string& name) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::filesystem::path& directory : {here, here.parent_path() / "bin", std::filesystem::path("/usr/libexec/ramet")})
    if (const std::filesystem::path path = directory / name; ::access(path.c_str(), X_OK) == 0) return path.string();
  return fail(ErrorKind::kUnavailable, "the program " + name + " is neither beside this one nor in /usr/libexec/ramet");
}

Status run_program(const ProgramRun& run) {
  TRY_ASSIGN(const std::string path, find_program(run.argv.at(0)));
  TRY_ASSIGN(const std::string bounds, find_program("prlimit"));
  TRY_ASSIGN(const std::string guard, find_program("setpriv"));
  TRY_ASSIGN(const UniqueFd said, make_memfd("said", 0));
  TRY_ASSIGN(const UniqueFd null, open_file("/dev/null", O_RDWR));
  SpawnOptions options{.stdin_fd = null.get(), .stdout_fd = said.get(), .stderr_fd = said.get()};
  options.argv = {guard,         "--no-new-privs",
                  "--pdeathsig", "KILL",
                  bounds,        "--as=" + std::to_string(run.address_space_bytes),
                  "--core=0",    "--fsize=" + std::to_string(std::max<uint64_t>(run.max_file_bytes, kMostSaid)),
                  path};
  options.argv.insert(options.argv.end(), run.argv.begin() + 1, run.argv.end());
  options.env = {"PATH=/usr/bin:/usr/sbin:/bin:/sbin", "LC_ALL=C.UTF-8"};
  options.env->insert(options.env->end(), run.environment.begin(), run.environment.end());
  for (const int file : run.files) options.keep_fds.push_back({.fd = file, .as = file});
  TRY_ASSIGN(ChildProcess child, ChildProcess::spawn(options));
  const Deadline end = deadline_after(run.time);
  while (MonotonicClock::now() < end) {
    if (const std::optional<int> status = child.wait(std::min(end, deadline_after(kTick))))
      return judge(run.argv[0], *status, said.get());
    if (run.on_tick) TRY(run.on_tick());
  }
  return fail(ErrorKind::kTimeout, run.argv[0] + " was ended after " + std::to_string(run.time.count()) + " s");
}

}  // namespace ramet::commit
