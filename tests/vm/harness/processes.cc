#include "vm/harness/processes.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace ramet::vmtest {
namespace {

namespace fs = std::filesystem;

std::string proc(pid_t pid, const std::string& file) { return "/proc/" + std::to_string(pid) + "/" + file; }

bool opened_for_writing(pid_t pid, int fd) {
  std::ifstream info(proc(pid, "fdinfo/" + std::to_string(fd)));
  std::string key, value;
  while (info >> key >> value)
    if (key == "flags:") return (std::strtol(value.c_str(), nullptr, 8) & O_ACCMODE) != O_RDONLY;
  return false;
}

}  // namespace

std::vector<Descriptor> descriptors_of(pid_t pid) {
  std::vector<Descriptor> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(proc(pid, "fd"), error)) {
    Descriptor d;
    d.fd = std::atoi(entry.path().filename().c_str());
    d.target = fs::read_symlink(entry.path(), error).string();
    struct stat status;
    // The directory stream's own descriptor is gone by now when pid is ourselves.
    if (stat(entry.path().c_str(), &status) != 0 || d.target == proc(pid, "fd")) continue;
    d.device = status.st_dev;
    d.inode = status.st_ino;
    d.character_device = S_ISCHR(status.st_mode);
    d.anonymous = d.target.rfind("anon_inode:", 0) == 0;
    d.writable = opened_for_writing(pid, d.fd);
    out.push_back(d);
  }
  return out;
}

bool same_open_file(pid_t a, int fd_a, pid_t b, int fd_b) { return syscall(SYS_kcmp, a, b, KCMP_FILE, fd_a, fd_b) == 0; }

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> out;
  std::error_code error;
  for (const fs::directory_entry& task : fs::directory_iterator(proc(pid, "task"), error)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child; children >> child;) out.push_back(child);
  }
  return out;
}

std::string surviving_children(Deadline deadline) {
  for (;;) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::vector<pid_t> left = children_of(getpid());
    if (left.empty()) return "";
    if (MonotonicClock::now() >= deadline) {
      std::string out;
      for (pid_t pid : left) {
        std::string name;
        std::getline(std::ifstream(proc(pid, "comm")), name);
        out += name + "[" + std::to_string(pid) + "] ";
      }
      return out;
    }
    std::this_thread::sleep_for(Milliseconds(5));
  }
}

uint64_t smaps_bytes(pid_t pid, const std::string& field) {
  std::ifstream file(proc(pid, "smaps_rollup"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    uint64_t kib = 0;
    if (words >> key >> kib && key == field + ":") return kib << 10;
  }
  return 0;
}

}  // namespace ramet::vmtest
