#include "cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"

namespace ramet::guest {
namespace {

constexpr uint64_t kMiB = 1u << 20;
constexpr uint64_t kAgentMemoryBytes = 16 * kMiB;  // memory.min: never reclaimed below
constexpr uint64_t kMinHeadroomBytes = 24 * kMiB;  // of the machine's memory that users cannot take
constexpr uint64_t kHeadroomTasks = 512;           // of the machine's tasks that users cannot take

Status write_control(const std::string& path, const std::string& value) {
  TRY_ASSIGN(const UniqueFd file, open_file(path, O_WRONLY));
  return write_all(file.get(), as_bytes(value));
}

uint64_t read_number(const std::string& path, uint64_t otherwise) {
  const Result<std::string> text = read_file(path, 64);
  return text ? std::strtoull(text->c_str(), nullptr, 10) : otherwise;
}

Status make_group(const std::string& dir) {
  if (::mkdir(dir.c_str(), 0755) < 0 && errno != EEXIST) return fail_errno("mkdir " + dir);
  return {};
}

uint64_t user_memory_max() {
  struct sysinfo info {};
  if (::sysinfo(&info) < 0) return UINT64_MAX;
  const uint64_t total = static_cast<uint64_t>(info.totalram) * info.mem_unit;
  const uint64_t headroom = std::max(kMinHeadroomBytes, total / 32);
  return total > 2 * headroom ? total - headroom : total / 2;
}

uint64_t user_pids_max() {
  const uint64_t tasks =
      std::min(read_number("/proc/sys/kernel/threads-max", 4096), read_number("/proc/sys/kernel/pid_max", 32768));
  return tasks > 2 * kHeadroomTasks ? tasks - kHeadroomTasks : tasks / 2;
}

}  // namespace

Result<UserTasks> UserTasks::open(const std::string& dir) {
  TRY(make_group(dir));
  TRY_ASSIGN(UniqueFd fd, open_file(dir, O_RDONLY | O_DIRECTORY));
  TRY_ASSIGN(UniqueFd events, open_file(dir + "/cgroup.events", O_RDONLY));
  return UserTasks(dir, std::move(fd), std::move(events));
}

Result<UserTasks> UserTasks::set_up_machine(const std::string& root) {
  // Limits are protection, not correctness: a kernel without a controller still gives a working guest.
  for (const char* controller : {"+memory", "+pids", "+cpu"})
    (void)write_control(root + "/cgroup.subtree_control", controller).has_value();
  const std::string agent = root + "/ramet.agent";
  TRY(make_group(agent));
  (void)write_control(agent + "/memory.min", std::to_string(kAgentMemoryBytes)).has_value();
  (void)write_control(agent + "/cpu.weight", "10000").has_value();
  TRY(write_control(agent + "/cgroup.procs", "0"));

  TRY_ASSIGN(UserTasks users, open(root + "/ramet.user"));
  (void)write_control(users.dir_ + "/memory.max", std::to_string(user_memory_max())).has_value();
  (void)write_control(users.dir_ + "/pids.max", std::to_string(user_pids_max())).has_value();
  return users;
}

Result<UserTasks::Leaf> UserTasks::make_leaf() {
  for (;;) {
    std::string name = "c" + std::to_string(next_leaf_++);
    if (::mkdirat(fd_.get(), name.c_str(), 0755) < 0) {
      if (errno == EEXIST) continue;
      return fail_errno("mkdir " + path_of(name));
    }
    TRY_ASSIGN(UniqueFd dir, open_file(path_of(name), O_RDONLY | O_DIRECTORY));
    return Leaf{std::move(name), std::move(dir)};
  }
}

Status UserTasks::kill_leaf(const std::string& leaf) const { return write_control(path_of(leaf) + "/cgroup.kill", "1"); }
Status UserTasks::kill_all() const { return write_control(dir_ + "/cgroup.kill", "1"); }

bool UserTasks::remove_leaf(const std::string& leaf) const {
  return ::unlinkat(fd_.get(), leaf.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
}

Status UserTasks::set_frozen(bool frozen) const { return write_control(dir_ + "/cgroup.freeze", frozen ? "1" : "0"); }

int UserTasks::event(const std::string& key) const {
  char text[256];
  const ssize_t n = ::pread(events_.get(), text, sizeof text - 1, 0);
  if (n <= 0) return -1;
  const std::string_view all(text, static_cast<size_t>(n));
  const size_t at = all.find(key + " ");
  return at == std::string_view::npos ? -1 : all[std::min(at + key.size() + 1, all.size() - 1)] - '0';
}

}  // namespace ramet::guest
