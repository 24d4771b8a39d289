// guest/service.h - runs the agent until somebody asks for the end: signals, reaping, the loop. The same for init and for
// tests. Thread: blocks the caller's; the only one.
#pragma once

#include "agent.h"

namespace ramet::guest {

struct ServiceEnd {
  bool reboot = false;
  Nanoseconds grace{};
};

struct ServiceOptions {
  UserTasks* users = nullptr;
  bool owns_machine = false;
  bool check_peer_cid = false;
  // Descriptors whose EPOLLIN may be a press of the power button, see init/power.h.
  std::vector<int> power_button_fds;
  std::function<void()> on_listening;
};

// Blocks SIGCHLD, SIGTERM and SIGINT for good. Call before anything is forked.
void block_service_signals();

// SIGTERM and the power button end it (power off), SIGINT too (reboot: that is what ctrl-alt-del sends to init).
ServiceEnd run_service(UniqueFd listener, ServiceOptions options);

}  // namespace ramet::guest
