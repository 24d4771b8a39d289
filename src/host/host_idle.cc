// Pause when idle: a sandbox that nobody has used for as long as it says is paused by itself. A use is whatever is asked of its
// inside, a fork or snapshot of it, a stream that is open, a command that runs. Who comes while it pauses waits, and wakes it:
// that it is idle and that it pauses from now on is one step under its mutex, as is that it runs and is in use.
#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "host/agent_client.h"
#include "host/host_impl.h"

namespace ramet::host {
namespace {

bool is_idle(const Sandbox& s) {
  const bool may_pause = s.info.idle_seconds != 0 && s.info.state == SandboxState::kRunning && s.machine && !s.ending;
  return may_pause && s.uses == 0 && MonotonicClock::now() - s.used_at >= std::chrono::seconds(s.info.idle_seconds);
}

// By the guest's own word; it can only keep itself awake.
int64_t used_at_ns(const abi::ProcessInfo& p, int64_t now_ns) {
  if (p.running() || !p.has_exit()) return now_ns;
  const int64_t took = static_cast<int64_t>(std::min<uint64_t>(p.exit().duration_ns(), INT64_MAX / 4));
  return std::clamp<int64_t>(p.started_ns(), 0, now_ns) + std::min(took, now_ns);
}

}  // namespace

InUse HostImpl::begin_use(const std::shared_ptr<Sandbox>& sandbox) {
  sandbox->uses++;
  sandbox->used_at = MonotonicClock::now();
  return {sandbox.get(), [sandbox](const Sandbox*) {
            const std::lock_guard lock(sandbox->mutex);
            sandbox->uses--;
            sandbox->used_at = MonotonicClock::now();
          }};
}

void HostImpl::pause_idle() {
  for (const std::shared_ptr<Sandbox>& s : all_sandboxes()) {
    const std::lock_guard lock(s->mutex);
    if (s->idle_look || !is_idle(*s)) continue;
    s->idle_look = true;
    idle_->post([this, s] { pause_if_idle(s); });
  }
}

void HostImpl::pause_if_idle(const std::shared_ptr<Sandbox>& s) {
  Result<Running> running = [&] {
    const std::lock_guard lock(s->mutex);
    return running_of(s);
  }();
  Status done = running ? note_running_commands(*running) : Status();
  if (running && done) {
    const Result<SandboxInfo> paused = pause_if(*running, is_idle);
    if (!paused) done = tl::unexpected<Error>(paused.error());
  }
  const std::lock_guard lock(s->mutex);
  if (!done) log_warn("sandbox " + s->info.id + " is idle and not paused: " + done.error().message());
  s->idle_look = false;
  if (!done) s->used_at = MonotonicClock::now();  // tried again when it has been idle as long again
}

// Commands that run without a stream are known to the guest's agent alone.
Status HostImpl::note_running_commands(const Running& r) {
  if (options_.agent == AgentUse::kNone) return {};
  const Deadline deadline = deadline_after(options_.agent_deadline);
  TRY_ASSIGN(UniqueFd stream, r.machine->agent_stream(deadline));
  abi::Request request;
  request.mutable_processes();
  TRY_ASSIGN(const abi::Result result, agent_call(std::move(stream), request, deadline));
  const int64_t now_ns = wall_ns();
  int64_t last_ns = 0;
  for (const abi::ProcessInfo& p : result.processes().processes()) last_ns = std::max(last_ns, used_at_ns(p, now_ns));
  if (last_ns == 0) return {};
  const Deadline last = MonotonicClock::now() - std::chrono::nanoseconds(std::max<int64_t>(now_ns - last_ns, 0));
  const std::lock_guard lock(r.sandbox->mutex);
  r.sandbox->used_at = std::max(r.sandbox->used_at, last);
  return {};
}

}  // namespace ramet::host
