#include "host/host_impl.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "host/ids.h"

namespace ramet::host {
namespace {
constexpr size_t kTombstones = 1000;
constexpr uint64_t kRoomToOpen = 4u << 20;
}  // namespace

Result<std::unique_ptr<Host>> Host::open(HostOptions options) {
  auto host = std::make_unique<HostImpl>(std::move(options));
  TRY(host->start());
  return host;
}

HostImpl::HostImpl(HostOptions options)
    : options_(std::move(options)),
      paths_{options_.state_dir, options_.runtime_dir},
      overlays_(paths_),
      cgroups_(options_.cgroup_root, options_.state_dir),
      resources_{paths_, overlays_, cgroups_},
      admission_(options_.state_dir, {options_.memory_reserve_mib << 20, options_.disk_reserve_mib << 20}) {}

Status HostImpl::start() {
  for (const std::string& dir :
       {paths_.state_dir, paths_.templates(), paths_.machines(), paths_.overlays(), paths_.runtime_dir, paths_.sockets()})
    TRY(make_lasting_directories(dir, 0700));
  TRY_ASSIGN(lock_, open_file(paths_.lock(), O_RDWR | O_CREAT, 0600));
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) < 0)
    return fail(ErrorKind::kConflict, "another daemon uses the state directory " + paths_.state_dir);
  // Databases need room before they can be read, and a full disk has none but this.
  if (free_disk_bytes(paths_.state_dir) < kRoomToOpen) drop_ballast();
  // A monitor whose parent monitor died becomes our child, and we reap it.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) return fail_errno("become subreaper");
  TRY_ASSIGN(watcher_, Watcher::start());
  TRY_ASSIGN(registry_, Registry::open(paths_.database()));
  TRY(open_images());
  template_store_ = std::make_unique<TemplateStore>(paths_, images_->store(),
                                                    [this](uint64_t bytes) { return admission_.check_disk(bytes); });
  fork_outcomes_ = std::make_unique<ForkOutcomes>(*registry_, [this] { drop_ballast(); });
  context_.reset(new Context{options_, paths_, *registry_, *fork_outcomes_, *images_, *template_store_, resources_, *watcher_,
                             admission_, [this](const std::string& id) { on_machine_end(id); },
                             [this] {
                               if (slow_) slow_->post([this] { tend_overlays(); });
                             },
                             [this](const std::string& family, const std::string& id) { evacuate_leaf(family, id); }});
  zygotes_ = std::make_unique<Zygotes>(*context_, store_of_templates());
  snapshots_ = std::make_unique<Snapshots>(*context_, *zygotes_);
  sealing_works_ = overlays_.can_seal();
  slow_ = std::make_unique<Background>("ramet-slow");
  idle_ = std::make_unique<Background>("ramet-idle");
  janitor_ = std::make_unique<Background>("ramet-janitor");
  TRY(recover());
  slow_->post([this] { tend_overlays(); });
  slow_->post([this] { tend_images(); });
  janitor_->post([this] { tick(); });
  for (const std::string& name : options_.eager_templates)
    for (const Template& t : template_store_->list())
      if (name == "*" || name == t.info.name)
        slow_->post([this, n = t.info.name] { (void)zygotes_->acquire(n, {}, {}).has_value(); });
  return {};
}

HostImpl::~HostImpl() {
  if (snapshots_) snapshots_->stop();
  if (janitor_) janitor_->stop();
  if (idle_) idle_->stop();
  if (slow_) slow_->stop();
  finish_filling();
  // Sandboxes live on; zygotes serve nobody without us.
  if (zygotes_) zygotes_->retire_all();
  const std::lock_guard lock(mutex_);
  sandboxes_.clear();
}

// Whose memory is not all there would stand still until the next daemon comes.
void HostImpl::finish_filling() {
  if (options_.memory_fill != MemoryFill::kOnDemand) return;
  const Deadline deadline = deadline_after(options_.finish_filling);
  for (const std::shared_ptr<Sandbox>& s : all_sandboxes()) {
    std::shared_ptr<MemoryFiller> filler;
    std::string id;
    {
      const std::lock_guard lock(s->mutex);
      if (s->machine) filler = s->machine->filler();
      id = s->info.id;
    }
    if (!filler) continue;
    if (const Status done = filler->wait_complete(deadline); !done)
      log_warn("sandbox " + id + " may stand still until the next daemon starts: " + done.error().message());
  }
}

Result<std::shared_ptr<Sandbox>> HostImpl::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto it = sandboxes_.find(id);
  if (it != sandboxes_.end()) {
    const std::lock_guard inner(it->second->mutex);
    if (it->second->info.state != SandboxState::kGone) return it->second;
    return fail(ErrorKind::kNotFound, "sandbox '" + id + "' is gone: " + it->second->info.state_reason);
  }
  for (const auto& [gone, why] : tombstones_)
    if (gone == id) return fail(ErrorKind::kNotFound, "sandbox '" + id + "' is gone: " + why);
  return fail(ErrorKind::kNotFound, "there is no sandbox '" + id.substr(0, 64) + "'");
}

Result<HostImpl::Running> HostImpl::find_running(const std::string& id) {
  TRY_ASSIGN(const std::shared_ptr<Sandbox> s, find(id));
  const std::lock_guard lock(s->mutex);
  return running_of(s);
}

Result<HostImpl::Running> HostImpl::running_of(const std::shared_ptr<Sandbox>& s) {
  const std::string& id = s->info.id;
  if (s->info.state == SandboxState::kFailed)
    return fail(ErrorKind::kConflict, "sandbox '" + id + "' has failed: " + s->info.state_reason);
  if (s->info.state != SandboxState::kRunning || !s->machine || s->ending)
    return fail(ErrorKind::kConflict, "sandbox '" + id + "' is " + (s->ending ? "ending" : state_name(s->info.state)));
  return Running{s, s->machine, s->info};
}

Result<HostImpl::Turn> HostImpl::wait_turn(const Running& seen) {
  Turn turn;
  turn.sandbox = std::unique_lock(seen.sandbox->fork_mutex);
  {
    const std::lock_guard lock(seen.sandbox->mutex);
    TRY_ASSIGN(turn.running, running_of(seen.sandbox));
  }
  turn.running.use = seen.use;
  turn.monitor = std::unique_lock(turn.running.machine->fork_lock());
  return turn;
}

Result<HostImpl::RunningOrPaused> HostImpl::running_or_paused(const std::string& id) {
  const Deadline deadline = deadline_after(options_.wake_deadline);
  for (;;) {
    TRY_ASSIGN(const std::shared_ptr<Sandbox> s, settled(id, deadline));
    const std::lock_guard lock(s->mutex);
    if (s->info.state == SandboxState::kPausing || s->info.state == SandboxState::kResuming) continue;
    if (s->info.state == SandboxState::kPaused && !s->ending) return RunningOrPaused(s);
    TRY_ASSIGN(Running running, running_of(s));
    running.use = begin_use(s);
    return RunningOrPaused(std::move(running));
  }
}

std::vector<std::shared_ptr<Sandbox>> HostImpl::all_sandboxes() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Sandbox>> out;
  for (const auto& [id, s] : sandboxes_) out.push_back(s);
  return out;
}

std::shared_ptr<Sandbox> HostImpl::insert(const SandboxInfo& info) {
  const auto s = std::make_shared<Sandbox>();
  s->info = info;
  const std::lock_guard lock(mutex_);
  sandboxes_[info.id] = s;
  return s;
}

void HostImpl::erase(const std::string& id, const std::string& why) {
  const std::lock_guard lock(mutex_);
  sandboxes_.erase(id);
  if (why.empty()) return;
  tombstones_.emplace_back(id, why);
  if (tombstones_.size() > kTombstones) tombstones_.pop_front();
}

std::optional<int64_t> HostImpl::expiry(std::optional<uint64_t> ttl_seconds) const {
  const uint64_t ttl = ttl_seconds.value_or(options_.default_ttl_seconds);
  if (ttl == 0) return std::nullopt;
  constexpr uint64_t kLongest = 100ull * 365 * 86400;
  return wall_ns() + static_cast<int64_t>(std::min(ttl, kLongest)) * 1'000'000'000;
}

std::vector<SandboxInfo> HostImpl::list() {
  std::vector<SandboxInfo> out;
  for (const std::shared_ptr<Sandbox>& s : all_sandboxes()) {
    const std::lock_guard lock(s->mutex);
    if (s->info.state != SandboxState::kGone) out.push_back(s->info);
  }
  std::sort(out.begin(), out.end(), [](const SandboxInfo& a, const SandboxInfo& b) {
    return std::tie(a.created_at_ns, a.id) < std::tie(b.created_at_ns, b.id);
  });
  return out;
}

Result<SandboxInfo> HostImpl::get(const std::string& id) {
  TRY_ASSIGN(const std::shared_ptr<Sandbox> s, find(id));
  const std::lock_guard lock(s->mutex);
  return s->info;
}

Result<SandboxInfo> HostImpl::patch(const std::string& id, const PatchOptions& options) {
  TRY_ASSIGN(const std::shared_ptr<Sandbox> s, find(id));
  // The row first: what was answered must still be true for the next daemon.
  if (options.ttl_seconds) TRY(set_time_to_live(id, *s, *options.ttl_seconds));
  if (options.idle_seconds) {
    TRY(registry_->set_idle(id, *options.idle_seconds));
    const std::lock_guard lock(s->mutex);
    s->info.idle_seconds = *options.idle_seconds;
    s->used_at = MonotonicClock::now();
  }
  if (options.labels) {
    TRY(registry_->set_labels(id, *options.labels));
    const std::lock_guard lock(s->mutex);
    s->info.labels = *options.labels;
  }
  return get(id);
}

Status HostImpl::set_time_to_live(const std::string& id, Sandbox& s, uint64_t seconds) {
  const std::lock_guard no_pause(s.fork_mutex);  // nor resume: each carries the time over
  const std::optional<int64_t> at = seconds == 0 ? std::nullopt : expiry(seconds);
  SandboxState state;
  {
    const std::lock_guard lock(s.mutex);
    state = s.info.state;
  }
  // Its time stands still until it is resumed.
  if (state == SandboxState::kPaused || state == SandboxState::kResuming)
    return registry_->set_time_left(id, at ? *at - wall_ns() : 0);
  TRY(registry_->set_expiry(id, at));
  const std::lock_guard lock(s.mutex);
  s.info.expires_at_ns = at;
  return {};
}

Result<std::string> HostImpl::logs(const std::string& id, uint64_t max_bytes) {
  TRY(find(id));
  return resources_.console_text(id, max_bytes);
}

std::vector<TemplateInfo> HostImpl::templates() {
  std::vector<TemplateInfo> out;
  for (Template& t : template_store_->list()) {
    const Zygotes::State state = zygotes_->state(t.info.name);
    t.info.status = state.status;
    t.info.status_reason = state.reason;
    t.info.started_from = state.origin;
    out.push_back(std::move(t.info));
  }
  return out;
}

Result<std::unique_ptr<TemplateFileWriter>> HostImpl::upload_template_file(const std::string& name, const std::string& file) {
  return template_store_->upload_file(name, file);
}

Result<TemplateInfo> HostImpl::commit_template(const std::string& name, std::string_view template_json) {
  TRY_ASSIGN(Template t, template_store_->commit(name, template_json));
  forget_machines_of(name);
  t.info.status = "cold";
  return std::move(t.info);
}

Status HostImpl::remove_template(const std::string& name) {
  TRY(template_store_->remove(name));
  forget_machines_of(name);
  return {};
}

}  // namespace ramet::host
