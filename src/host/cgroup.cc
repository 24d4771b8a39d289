#include "host/cgroup.h"

#include <dirent.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <span>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "chunk/digest.h"

namespace ramet::host {
namespace {

constexpr const char* kWanted[] = {"memory", "cpu", "pids", "io"};

bool is_cgroup2(const std::string& path) {
  struct statfs fs;
  return ::statfs(path.c_str(), &fs) == 0 && static_cast<unsigned long>(fs.f_type) == CGROUP2_SUPER_MAGIC;
}

Status write_control(const std::string& path, std::string_view value) {
  TRY_ASSIGN(const UniqueFd fd, open_file(path, O_WRONLY));
  ssize_t n;
  do n = ::write(fd.get(), value.data(), value.size());
  while (n < 0 && errno == EINTR);
  if (n < 0) return fail_errno("write '" + std::string(value) + "' to " + path);
  return {};
}

Status make_dir(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return {};
  return fail_errno("make cgroup " + path);
}

std::vector<std::string> words(const std::string& path) {
  std::vector<std::string> out;
  const Result<std::string> text = read_file(path);
  if (!text) return out;
  std::istringstream in(*text);
  for (std::string w; in >> w;) out.push_back(w);
  return out;
}

std::vector<std::string> subdirectories(const std::string& path) {
  std::vector<std::string> out;
  DIR* dir = ::opendir(path.c_str());
  if (!dir) return out;
  while (const dirent* e = ::readdir(dir))
    if (e->d_type == DT_DIR && e->d_name[0] != '.') out.emplace_back(e->d_name);
  ::closedir(dir);
  std::sort(out.begin(), out.end());
  return out;
}

// Turns on what this level offers; one write per controller so that one refusal does not lose the others.
void enable_controllers(const std::string& dir) {
  const std::vector<std::string> offered = words(dir + "/cgroup.controllers");
  for (const char* c : kWanted)
    if (std::find(offered.begin(), offered.end(), c) != offered.end())
      (void)write_control(dir + "/cgroup.subtree_control", std::string("+") + c);
}

std::optional<uint64_t> number_in(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text || text->empty() || (*text)[0] < '0' || (*text)[0] > '9') return std::nullopt;  // "max"
  return std::strtoull(text->c_str(), nullptr, 10);
}

std::string name_of_tree(const std::string& state_dir) {
  std::error_code relative_stays;
  const std::string path = std::filesystem::absolute(state_dir, relative_stays).lexically_normal().string();
  return chunk::sha256(std::as_bytes(std::span(path))).to_hex().substr(0, 12);
}

}  // namespace

CgroupTree::CgroupTree(const std::string& root, const std::string& state_dir) {
  std::string top = root;
  if (!is_cgroup2(top)) top = root + "/unified";
  if (!is_cgroup2(top)) return;
  enable_controllers(top);
  const std::string slice = top + "/ramet.slice";
  if (!make_dir(slice)) return;
  enable_controllers(slice);
  const std::string tree = slice + "/" + name_of_tree(state_dir);
  if (!make_dir(tree)) return;
  enable_controllers(tree);
  if (::access((tree + "/cgroup.procs").c_str(), W_OK) != 0) return;
  tree_ = tree;
  controllers_ = words(tree + "/cgroup.subtree_control");
}

CgroupTree::~CgroupTree() {
  if (usable()) ::rmdir(tree_.c_str());
}

bool CgroupTree::has(std::string_view controller) const {
  return std::find(controllers_.begin(), controllers_.end(), controller) != controllers_.end();
}

CgroupReport CgroupTree::report() const {
  CgroupReport r;
  r.root = tree_;
  r.controllers = controllers_;
  r.usable = usable() && has("memory");
  return r;
}

Status CgroupTree::make_family(const std::string& family, const FamilyLimits& limits) const {
  if (!usable()) return {};
  const std::string dir = family_dir(family);
  TRY(make_dir(dir));
  enable_controllers(dir);
  // Set once: an operator may have changed it since.
  if (has("memory") && limits.memory_max_bytes != 0 && !family_memory_max(family))
    TRY(write_control(dir + "/memory.max", std::to_string(limits.memory_max_bytes)));
  return {};
}

Status CgroupTree::make_leaf(const std::string& family, const std::string& machine, const LeafLimits& limits) const {
  if (!usable()) return {};
  const std::string dir = leaf_dir(family, machine);
  TRY(make_dir(dir));
  if (has("cpu")) TRY(write_control(dir + "/cpu.weight", std::to_string(limits.cpu_weight)));
  if (has("pids")) TRY(write_control(dir + "/pids.max", std::to_string(limits.pids_max)));
  return {};
}

Status CgroupTree::move(const std::string& family, const std::string& machine, pid_t pid) const {
  if (!usable()) return {};
  return write_control(leaf_dir(family, machine) + "/cgroup.procs", std::to_string(pid));
}

std::optional<bool> CgroupTree::contains(const std::string& family, pid_t pid) const {
  if (!usable()) return std::nullopt;
  const Result<std::string> text = read_file("/proc/" + std::to_string(pid) + "/cgroup");
  if (!text) return std::nullopt;
  const std::string path = tree_.substr(tree_.rfind("/ramet.slice/")) + "/" + family + "/";
  std::istringstream in(*text);
  for (std::string line; std::getline(in, line);)
    if (line.rfind("0::", 0) == 0) return line.find(path) != std::string::npos;
  return std::nullopt;
}

Status CgroupTree::kill_leaf(const std::string& family, const std::string& machine) const {
  if (!usable()) return {};
  Status s = write_control(leaf_dir(family, machine) + "/cgroup.kill", "1");
  if (!s && s.error().kind() == ErrorKind::kNotFound) return {};
  return s;
}

std::vector<pid_t> CgroupTree::members(const std::string& family, const std::string& machine) const {
  std::vector<pid_t> out;
  if (!usable()) return out;
  for (const std::string& w : words(leaf_dir(family, machine) + "/cgroup.procs")) out.push_back(std::atoi(w.c_str()));
  return out;
}

Status CgroupTree::remove_leaf(const std::string& family, const std::string& machine) const {
  if (!usable()) return {};
  const std::string dir = leaf_dir(family, machine);
  const Deadline deadline = deadline_after(Milliseconds(2000));
  for (;;) {
    if (::rmdir(dir.c_str()) == 0 || errno == ENOENT) break;
    if (errno != EBUSY || MonotonicClock::now() >= deadline) return fail_errno("remove cgroup " + dir);
    std::this_thread::sleep_for(Milliseconds(5));
  }
  ::rmdir(family_dir(family).c_str());  // succeeds for the last leaf only
  return {};
}

std::vector<std::string> CgroupTree::families() const {
  if (!usable()) return {};
  return subdirectories(tree_);
}

Status CgroupTree::remove_family(const std::string& family) const {
  if (!usable() || ::rmdir(family_dir(family).c_str()) == 0 || errno == ENOENT) return {};
  return fail_errno("remove cgroup " + family_dir(family));
}

std::vector<std::pair<std::string, std::string>> CgroupTree::leaves() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& family : families())
    for (const std::string& machine : subdirectories(family_dir(family))) out.emplace_back(family, machine);
  return out;
}

std::optional<uint64_t> CgroupTree::family_memory_used(const std::string& family) const {
  if (!usable() || !has("memory")) return std::nullopt;
  const Result<std::string> text = read_file(family_dir(family) + "/memory.stat");
  if (!text) return std::nullopt;
  uint64_t used = 0;
  std::istringstream in(*text);
  std::string name;
  for (uint64_t value = 0; in >> name >> value;)
    if (name == "anon" || name == "kernel" || name == "shmem") used += value;
  return used;
}
std::optional<uint64_t> CgroupTree::family_memory_max(const std::string& family) const {
  if (!usable() || !has("memory")) return std::nullopt;
  return number_in(family_dir(family) + "/memory.max");
}

}  // namespace ramet::host
