// The disk of a running sandbox becomes an image. Everybody waits for one instant only: the guest's file system is frozen
// through its agent, the monitor swaps the overlay, the file system thaws. What stands still now are the frozen overlays; they
// go into the store while the sandbox writes on. They are held by descriptors, so that it may even end meanwhile.
#include "base/log.h"
#include "host/agent_client.h"
#include "host/crash_point.h"
#include "host/frozen_machine.h"
#include "host/host_impl.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

// Longer than this no guest is held up; both are counted by its agent.
constexpr Milliseconds kFreezeLimit{5000}, kHold{5000};
constexpr Milliseconds kFreezeAnswer = kFreezeLimit + Milliseconds(2000);
constexpr Milliseconds kThawAnswer{3000};
constexpr Milliseconds kSwapLimit{10'000};

// The guest's root file system, frozen until thaw(), or until the hold is over.
class FrozenFileSystem {
 public:
  explicit FrozenFileSystem(Machine& machine) : machine_(machine) {}
  ~FrozenFileSystem() { thaw(); }

  Status freeze() {
    abi::Request request;
    request.mutable_freeze_fs()->set_deadline_ms(static_cast<uint32_t>(kFreezeLimit.count()));
    request.mutable_freeze_fs()->set_hold_ms(static_cast<uint32_t>(kHold.count()));
    TRY_ASSIGN(UniqueFd stream, machine_.agent_stream(deadline_after(kFreezeLimit)));
    began_ns_ = monotonic_ns();
    asked_ = true;  // from here on it may be, whatever we hear
    TRY_ASSIGN(const abi::Result answer, agent_call(std::move(stream), request, deadline_after(kFreezeAnswer)));
    (void)answer;
    frozen_ = true;
    return {};
  }
  // Certainly still frozen. The hold began when we had asked, or later.
  bool holds() const { return frozen_ && ms_between(began_ns_, monotonic_ns()) < static_cast<double>(kHold.count()); }
  void thaw() {
    if (!std::exchange(asked_, false)) return;
    abi::Request request;
    request.mutable_thaw_fs();
    Result<UniqueFd> stream = machine_.agent_stream(deadline_after(kThawAnswer));
    const bool thawed = stream && agent_call(std::move(*stream), request, deadline_after(kThawAnswer));
    if (!thawed) log_warn("a guest did not confirm the thaw of its file system; its agent thaws it by itself");
    frozen_ms_ = ms_between(began_ns_, monotonic_ns());
  }
  double frozen_ms() const { return frozen_ms_; }

 private:
  Machine& machine_;
  int64_t began_ns_ = 0;
  bool asked_ = false, frozen_ = false;
  double frozen_ms_ = 0;
};

}  // namespace

Status HostImpl::freeze_overlay(const Running& r) {
  ForkIntent intent;  // of a fork without children
  intent.id = new_id("op");
  intent.parent = r.info.id;
  intent.parent_next = new_id("ov");
  TRY(registry_->begin_fork(intent));
  crash_point("commit.journalled");
  Result<OverlayFiles> next = overlays_.create(intent.parent_next);
  if (!next) {
    (void)fork_outcomes_->note(intent, false).has_value();  // kept if it fails
    return tl::unexpected<Error>(next.error());
  }
  FdsToSend fds;
  vmm::Request request;
  request.mutable_freeze_disk()->set_disk_id("vda");
  add_overlay(*request.mutable_freeze_disk()->mutable_next(), fds, *next);
  const Result<MonitorReply> reply = r.machine->call(std::move(request), fds, deadline_after(kSwapLimit));
  next = fail(ErrorKind::kInternal, "");  // our descriptors of it go
  const bool answered = reply && reply->response.has_disk_frozen();
  const bool swapped = answered ? reply->response.disk_frozen().swapped()
                                : process_has_open(r.machine->facts().pid, paths_.overlay_data(intent.parent_next));
  crash_point("commit.frozen");
  TRY(fork_outcomes_->note(intent, swapped));
  context_->overlays_changed();
  if (answered) return {};
  return tl::unexpected<Error>(reply ? Error(ErrorKind::kCorrupt, "the monitor answered FreezeDisk with something else")
                                     : reply.error());
}

Result<std::vector<image::OverlayFiles>> HostImpl::open_frozen(const std::string& id) {
  TRY_ASSIGN(std::vector<std::string> chain, registry_->chain(id));
  if (chain.empty()) return fail(ErrorKind::kNotFound, "sandbox '" + id + "' has no disk any more");
  chain.pop_back();  // the writable one
  return open_frozen_overlays(*context_, chain);
}

Result<CommittedDisk> HostImpl::commit_disk(const std::string& id, const std::string& name) {
  TRY(images_->check_new(name));
  TRY_ASSIGN(const Running seen, wake(id));

  CommittedDisk done;
  std::shared_ptr<OpenImage> base;
  std::vector<image::OverlayFiles> overlays;
  {
    TRY_ASSIGN(const Turn turn, wait_turn(seen));
    const Running& r = turn.running;
    TRY_ASSIGN(const std::string base_name, registry_->base_image(id));
    if (base_name.empty())
      return fail(ErrorKind::kUnsupported, "the disk of sandbox '" + id + "' stands on a raw file, not on an image");
    TRY_ASSIGN(base, images_->store().use(base_image_id(base_name)));
    TRY(fork_outcomes_->note_all_of(id));
    FrozenFileSystem files(*r.machine);
    const Status quiet =
        options_.agent == AgentUse::kNone ? fail(ErrorKind::kUnsupported, "there is no agent in the guest") : files.freeze();
    TRY(freeze_overlay(r));
    done.clean = quiet && files.holds();
    files.thaw();
    if (!quiet) done.why_not_clean = quiet.error().message();
    if (quiet && !done.clean) done.why_not_clean = "the disk was not frozen within " + std::to_string(kHold.count()) + " ms";
    done.frozen_ms = files.frozen_ms();
    TRY_ASSIGN(overlays, open_frozen(id));
  }
  TRY(images_->store().commit_disk({ImageSpace::kUser, name}, *base, std::move(overlays)));
  TRY_ASSIGN(done.image, images_->get(name));
  return done;
}

}  // namespace ramet::host
