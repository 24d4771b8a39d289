#include "freezer.h"

#include "base/log.h"

namespace ramet::guest {

Freezer::Freezer(Reactor& reactor, UserTasks* users, GenerationWatch& generation)
    : reactor_(reactor), users_(users), generation_(generation) {}

void Freezer::freeze(Nanoseconds deadline, Done done) {
  if (!users_) return done(fail(ErrorKind::kUnsupported, "this agent has no cgroup of its own to freeze"));
  if (state_ == State::kFrozen) {
    ticks_ = 0;  // asked again: whoever asks will thaw. Of which machine we are it says nothing
    return done(Nanoseconds(0));
  }
  waiting_.push_back(std::move(done));
  if (state_ == State::kFreezing) return;
  state_ = State::kFreezing;
  began_at_ = MonotonicClock::now();
  generation_at_freeze_ = generation_.changes();
  transport_reset_ = false;
  events_watch_ = reactor_.watch(users_->events_fd(), EPOLLPRI, [this](uint32_t) { on_events(); });
  deadline_timer_ = reactor_.after(deadline, [this, deadline] {
    const auto waited = std::chrono::duration_cast<Milliseconds>(deadline).count();
    if (users_->all_frozen()) return on_events();
    (void)users_->set_frozen(false).has_value();
    state_ = State::kThawed;
    complete(fail(ErrorKind::kNotQuiescent, "user tasks did not stand still within " + std::to_string(waited) + " ms"));
  });
  if (const Status asked = users_->set_frozen(true); !asked) {
    state_ = State::kThawed;
    return complete(tl::unexpected<Error>(asked.error()));
  }
  on_events();
}

void Freezer::on_events() {
  if (state_ != State::kFreezing || !users_->all_frozen()) return;
  state_ = State::kFrozen;
  ticks_ = 0;
  tick_timer_ = reactor_.after(std::chrono::seconds(1), [this] { tick(); });
  complete(MonotonicClock::now() - began_at_);
}

Status Freezer::thaw() {
  if (!users_) return fail(ErrorKind::kUnsupported, "this agent has no cgroup of its own to thaw");
  const bool was_freezing = state_ == State::kFreezing;
  TRY(users_->set_frozen(false));
  state_ = State::kThawed;
  tick_timer_.cancel();
  if (was_freezing) complete(fail(ErrorKind::kCancelled, "thawed before everything stood still"));
  return {};
}

void Freezer::complete(Result<Nanoseconds> outcome) {
  events_watch_.reset();
  deadline_timer_.cancel();
  std::vector<Done> waiting;
  waiting.swap(waiting_);
  for (const Done& done : waiting) done(outcome);
}

// Seconds in which this guest really ran: after a pause of any length a timer fires once, so the reports of a new generation,
// which take milliseconds, always come before enough ticks do.
void Freezer::tick() {
  if (state_ != State::kFrozen) return;
  const bool same_machine = generation_.reliable() && generation_.changes() == generation_at_freeze_ && !transport_reset_;
  if (++ticks_ >= kAbandonedTicks && same_machine) {
    log_warn("nobody thawed the user tasks for " + std::to_string(kAbandonedTicks) + " s; thawing them");
    (void)thaw().has_value();
    return;
  }
  tick_timer_ = reactor_.after(std::chrono::seconds(1), [this] { tick(); });
}

}  // namespace ramet::guest
