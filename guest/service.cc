#include "service.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "init/power.h"

namespace ramet::guest {
namespace {

constexpr Milliseconds kGrace{2000};

sigset_t service_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int sig : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&set, sig);
  return set;
}

}  // namespace

void block_service_signals() {
  const sigset_t set = service_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

ServiceEnd run_service(UniqueFd listener, ServiceOptions options) {
  const sigset_t set = service_signals();
  UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) log_error("no signalfd: children will not be reaped");

  ServiceEnd end;
  Reactor reactor;
  const auto stop = [&](bool reboot, Nanoseconds grace) {
    end = {reboot, grace};
    reactor.stop();
  };
  Agent agent(reactor, std::move(listener),
              {.users = options.users,
               .owns_machine = options.owns_machine,
               .check_peer_cid = options.check_peer_cid,
               .on_shutdown = stop});
  const Watch signal_watch = reactor.watch(signals.get(), EPOLLIN, [&](uint32_t) {
    signalfd_siginfo info{};
    while (::read(signals.get(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) stop(info.ssi_signo == SIGINT, kGrace);
    agent.reap();
  });
  std::vector<Watch> buttons;
  for (const int fd : options.power_button_fds)
    buttons.push_back(reactor.watch(fd, EPOLLIN, [&stop, fd](uint32_t) {
      if (power_button_pressed(fd)) stop(false, kGrace);
    }));
  if (options.on_listening) options.on_listening();
  reactor.run();
  return end;
}

}  // namespace ramet::guest
