#include "host/frozen_tasks.h"

namespace ramet::host {

Status FrozenTasks::freeze() {
  const Deadline deadline = deadline_after(options_.agent_deadline);
  TRY_ASSIGN(UniqueFd freeze_stream, machine_.agent_stream(deadline));
  TRY_ASSIGN(UniqueFd thaw_stream, machine_.agent_stream(deadline));
  thaw_ = std::make_unique<AgentChannel>(std::move(thaw_stream));
  abi::Request request;
  request.mutable_freeze()->set_deadline_ms(static_cast<uint32_t>(options_.freeze_deadline.count()));
  began_ns_ = monotonic_ns();
  frozen_ = true;  // from here on it may be, whatever we hear
  AgentChannel channel(std::move(freeze_stream));
  TRY(channel.send(request, deadline));
  Result<abi::Result> answer = channel.receive_result(deadline_after(options_.freeze_deadline + Milliseconds(2000)));
  Status done = answer ? check_result(*answer) : Status(tl::unexpected<Error>(answer.error()));
  if (done) return {};
  (void)thaw();
  if (done.error().kind() == ErrorKind::kTimeout)
    return fail(ErrorKind::kNotQuiescent, "the guest did not stand still in time: no answer from its agent");
  return done;
}

void FrozenTasks::send_thaw() {
  abi::Request request;
  request.mutable_thaw();
  sent_ = thaw_ && thaw_->send(request, deadline_after(Milliseconds(1000))).has_value();
}

bool FrozenTasks::confirm_thaw() {
  bool ok = sent_;
  if (ok) {
    const Result<abi::Result> answer = thaw_->receive_result(deadline_after(Milliseconds(3000)));
    ok = answer && check_result(*answer).has_value();
  }
  thaw_.reset();
  for (int i = 0; !ok && i < 3 && machine_.alive(); i++) {  // by a connection of its own
    Result<UniqueFd> stream = machine_.agent_stream(deadline_after(Milliseconds(3000)));
    abi::Request request;
    request.mutable_thaw();
    ok = stream && agent_call(std::move(*stream), request, deadline_after(Milliseconds(3000))).has_value();
  }
  if (ok) frozen_ = false;
  ended_ns_ = monotonic_ns();
  return ok;
}

bool FrozenTasks::thaw() {
  send_thaw();
  const bool ok = confirm_thaw();
  frozen_ = false;
  return ok;
}

}  // namespace ramet::host
