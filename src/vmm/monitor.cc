#include "vmm/monitor.h"

#include "base/log.h"

namespace ramet::vmm {
namespace {
constexpr Milliseconds kPauseLimit{2000};
constexpr std::chrono::seconds kFarewellLimit{1};
}  // namespace

Monitor::Monitor(std::unique_ptr<EventLoop> loop)
    : loop_(std::move(loop)),
      server_(*loop_, [this](control::Server::Ticket ticket, const Request& request, control::ReceivedFds fds) {
        on_request(ticket, request, std::move(fds));
      }) {}

Monitor::~Monitor() = default;

int Monitor::run() {
  while (!exit_code_) {
    loop_->run();
    if (fork_ && !exit_code_) perform_fork();
  }
  return *exit_code_;
}

void Monitor::on_request(control::Server::Ticket ticket, const Request& request, control::ReceivedFds fds) {
  using Op = Request::OpCase;
  const auto answer = [&](const Status& status) {
    if (status)
      server_.respond_ok(ticket);
    else
      server_.respond_error(ticket, status.error());
  };
  switch (request.op_case()) {
    case Op::kPing:
      return answer({});
    case Op::kFork: {
      if (fork_) return answer(fail(ErrorKind::kConflict, "another fork is under way"));
      Result<ForkPlan> plan = plan_fork(ticket, request.fork(), fds);
      if (!plan) return server_.respond_error(ticket, plan.error());
      fork_ = *std::move(plan);
      return loop_->stop();  // the main loop performs it
    }
    case Op::kPause:
      return answer(pause());
    case Op::kResume:
      return answer(resume());
    case Op::kPowerButton:
      machine_->power().press_button();
      return answer({});
    case Op::kStop:
      answer({});
      return finish("stopped", "asked for by the daemon");
    case Op::kGetStats: {
      Response response;
      *response.mutable_stats() = stats();
      return server_.respond(ticket, std::move(response));
    }
    case Op::kDebugPush: {
      if (!machine_->debug_port()) return answer(fail(ErrorKind::kUnsupported, "this machine has no debug port"));
      const std::vector<uint32_t> words(request.debug_push().words().begin(), request.debug_push().words().end());
      machine_->debug_port()->push(words);
      return answer({});
    }
    default:
      return answer(fail(ErrorKind::kUnsupported, "unknown request " + std::to_string(request.op_case())));
  }
}

void Monitor::set_machine_going() {
  from_image_ = false;
  machine_->go_on();
}

Status Monitor::pause() {
  TRY(machine_->stand_still(deadline_after(kPauseLimit)));
  paused_ = true;
  return {};
}

Status Monitor::resume() {
  if (!paused_) return fail(ErrorKind::kConflict, "the machine is not paused");
  paused_ = false;
  set_machine_going();
  return {};
}

Stats Monitor::stats() const {
  Stats s;
  s.set_generation(generation_);
  s.set_exits(machine_->exits());
  s.set_console_bytes(machine_->console().total_bytes());
  return s;
}

void Monitor::finish(const std::string& reason, const std::string& detail) {
  log_info("ended: " + reason + " (" + detail + ")");
  machine_->console().flush();
  Event event;
  event.mutable_ended()->set_reason(reason);
  event.mutable_ended()->set_detail(detail);
  server_.send_event(event);
  server_.flush(deadline_after(kFarewellLimit));
  exit_code_ = 0;
  loop_->stop();
}

}  // namespace ramet::vmm
