#include "cli/interrupts.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace ramet::cli {

Result<Interrupts> Interrupts::begin() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  if (::pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) return fail_errno("block signals");
  UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return fail_errno("signalfd");
  return Interrupts(std::move(signals));
}

Result<Interrupts::Event> Interrupts::wait(const ChildProcess& child, int readable, Deadline deadline) {
  std::array<pollfd, 3> fds{pollfd{signals_.get(), POLLIN, 0}, {child.pidfd(), POLLIN, 0}, {readable, POLLIN, 0}};
  constexpr int64_t kLongest = 3'600'000;
  for (;;) {
    const int timeout_ms = static_cast<int>(std::min<int64_t>(time_left(deadline).count(), kLongest));
    const int ready = ::poll(fds.data(), fds.size(), timeout_ms);
    if (ready < 0 && errno != EINTR) return fail_errno("poll");
    signalfd_siginfo info;
    if (ready > 0 && fds[0].revents != 0 && ::read(signals_.get(), &info, sizeof info) == sizeof info) return Event::kSignal;
    if (ready > 0 && fds[1].revents != 0) return Event::kChildEnded;
    if (ready > 0 && fds[2].revents != 0) return Event::kReadable;
    if (time_left(deadline).count() == 0) return Event::kDeadline;
  }
}

}  // namespace ramet::cli
