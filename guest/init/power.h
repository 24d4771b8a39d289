// guest/init/power.h - the power button and the clean end of the machine. Thread: init's only one.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "cgroup.h"

namespace ramet::guest {

// Input devices that have a power key.
std::vector<UniqueFd> open_power_buttons();
// Reads what is queued on such a device.
bool power_button_pressed(int fd);

struct PowerOff {
  bool reboot = false;
  Nanoseconds grace{};  // between SIGTERM and SIGKILL
  const UserTasks* users = nullptr;
};
// Ends all processes, syncs, makes every file system read-only, switches off. Requires: we are process 1.
[[noreturn]] void power_off(const PowerOff& how);

}  // namespace ramet::guest
