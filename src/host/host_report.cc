// What the host says about itself and about what its sandboxes cost.
#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <thread>

#include "base/child_process.h"
#include "base/file.h"
#include "base/log.h"
#include "base/socket.h"
#include "host/host_impl.h"

#include <poll.h>

namespace ramet::host {
namespace {

constexpr Milliseconds kMeasureEvery{2000};

bool younger(const TreeNode& a, const TreeNode& b) {
  return std::tie(a.info.created_at_ns, a.info.id) < std::tie(b.info.created_at_ns, b.info.id);
}

// Runs the monitor's own probe: it times a tiny guest, which opening the device does not.
KvmReport probe_kvm(const std::string& program, const std::string& device) {
  KvmReport r;
  Result<Pipe> out = make_pipe();
  if (!out) return r;
  SpawnOptions spawn;
  spawn.argv = {program, "--probe-kvm", "--json", "--device", device};
  spawn.stdout_fd = out->write_end.get();
  Result<ChildProcess> child = ChildProcess::spawn(spawn);
  if (!child) {
    r.detail = child.error().message();
    return r;
  }
  out->write_end.reset();
  std::string text;
  const Deadline deadline = deadline_after(Milliseconds(30'000));
  char chunk[4096];
  while (text.size() < (64u << 10) && wait_for(out->read_end.get(), POLLIN, deadline)) {
    const ssize_t n = ::read(out->read_end.get(), chunk, sizeof chunk);
    if (n <= 0) break;
    text.append(chunk, static_cast<size_t>(n));
  }
  (void)child->wait(deadline);
  boost::system::error_code ec;
  const boost::json::value v = boost::json::parse(text, ec);
  if (ec || !v.is_object()) {
    r.detail = "the probe of KVM gave no answer";
    return r;
  }
  if (const boost::json::value* u = v.get_object().if_contains("usable")) r.usable = u->is_bool() && u->get_bool();
  for (const char* key : {"reason", "detail"})
    if (const boost::json::value* d = v.get_object().if_contains(key); d && d->is_string())
      r.detail = std::string(d->get_string());
  return r;
}

}  // namespace

std::vector<TreeNode> HostImpl::tree() {
  std::vector<std::shared_ptr<Sandbox>> all = all_sandboxes();
  std::map<std::string, TreeNode> nodes;
  for (const std::shared_ptr<Sandbox>& s : all) {
    TreeNode node;
    std::shared_ptr<Machine> machine;
    bool fresh = false;
    {
      const std::lock_guard lock(s->mutex);
      node.info = s->info;
      machine = s->machine;
      fresh = MonotonicClock::now() < s->memory_use_until;
    }
    // Walking page tables holds the map lock, which a fork needs: never while one is pending, and not at every question.
    if (machine && !fresh && s->forks_pending == 0 && machine->alive()) {
      const Result<MemoryUse> use =
          measure_memory(machine->facts().pid, machine->facts().ram_address, machine->facts().ram_bytes);
      const std::lock_guard lock(s->mutex);
      if (use) s->memory_use = *use;
      s->memory_use_until = deadline_after(kMeasureEvery);
    }
    {
      const std::lock_guard lock(s->mutex);
      if (machine) {
        node.ram_diverged_bytes = s->memory_use.diverged_bytes;
        node.ram_own_bytes = s->memory_use.own_bytes;
        node.ram_share_bytes = s->memory_use.share_bytes;
      }
    }
    if (const Result<std::vector<std::string>> chain = registry_->chain(node.info.id); chain && !chain->empty())
      node.disk_own_bytes = overlays_.allocated_bytes(chain->back());
    nodes.emplace(node.info.id, std::move(node));
  }
  // Children to their parents, deepest first.
  std::vector<std::string> order;
  for (const auto& [id, node] : nodes) order.push_back(id);
  std::sort(order.begin(), order.end(),
            [&](const std::string& a, const std::string& b) { return nodes.at(a).info.depth > nodes.at(b).info.depth; });
  std::vector<TreeNode> roots;
  for (const std::string& id : order) {
    TreeNode node = std::move(nodes.at(id));
    std::sort(node.children.begin(), node.children.end(), younger);
    const auto parent = node.info.parent_id ? nodes.find(*node.info.parent_id) : nodes.end();
    if (parent == nodes.end())
      roots.push_back(std::move(node));
    else
      parent->second.children.push_back(std::move(node));
  }
  std::sort(roots.begin(), roots.end(), younger);
  return roots;
}

HostReport HostImpl::report() {
  HostReport r;
  r.version = options_.version;
  r.state_dir = paths_.state_dir;
  r.runtime_dir = paths_.runtime_dir;
  bool known;
  {
    const std::lock_guard lock(mutex_);
    r.kvm = kvm_;
    known = !kvm_.detail.empty();
  }
  if (!known) {
    r.kvm = probe_kvm(options_.vmm_program, options_.kvm_device);
    const std::lock_guard lock(mutex_);
    kvm_ = r.kvm;
  }
  r.cgroup = cgroups_.report();
  const MemoryInfo memory = read_memory_info();
  r.memory_total_bytes = memory.total_bytes;
  r.memory_available_bytes = memory.available_bytes;
  r.memory_reserved_bytes = admission_.reserved_bytes();
  r.state_free_bytes = free_disk_bytes(paths_.state_dir);
  r.immutable_overlays = sealing_works_;
  if (const Result<StoreReport> store = images_->report())
    r.store = *store;
  else
    r.warnings.push_back("the store of images: " + store.error().message());
  r.cpus = std::thread::hardware_concurrency();
  for (const SandboxInfo& i : list()) r.sandboxes_running += i.state == SandboxState::kRunning;
  utsname u{};
  if (::uname(&u) == 0) r.kernel = u.release;
  if (!r.kvm.usable) r.warnings.push_back("KVM cannot run sandboxes here: " + r.kvm.detail);
  if (!r.cgroup.usable)
    r.warnings.push_back("no cgroup v2 with the memory controller" +
                         (r.cgroup.root.empty() ? std::string() : " at " + r.cgroup.root) +
                         ": families are not limited in memory");
  if (!r.immutable_overlays)
    r.warnings.push_back("the file system of " + paths_.state_dir + " cannot make frozen overlays immutable");
  return r;
}

Health HostImpl::health() { return {true, options_.version, "ready"}; }

}  // namespace ramet::host
