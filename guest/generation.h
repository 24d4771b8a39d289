// guest/generation.h - has this machine become another one? The kernel's vmgenid driver reseeds the random numbers when the VM
// generation changes and then logs it; we count those lines of /dev/kmsg. Lines lost to an overrun count as a change.
// The log, because kernels up to 6.12 and beyond tell user space in no other way: the uevent once proposed was withdrawn. A
// user cannot forge the line: what is written to /dev/kmsg never has the kernel's facility. Not here: what to do about it
// (freezer.h, identity.h). Thread: the reactor's.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/unique_fd.h"
#include "reactor.h"

namespace ramet::guest {

class GenerationWatch {
 public:
  explicit GenerationWatch(Reactor& reactor);

  // True when a change would be noticed: the log is open and the driver is bound to a device.
  bool reliable() const;
  // Changes since the start. Reads what the kernel has queued first.
  uint32_t changes();
  // Called after each change.
  void set_on_change(std::function<void()> callback) { on_change_ = std::move(callback); }

 private:
  void drain();

  UniqueFd log_;
  Watch watch_;
  uint32_t changes_ = 0;
  std::function<void()> on_change_;
};

// One record of /dev/kmsg, "PRIORITY,SEQUENCE,...;TEXT\n": is it the kernel's report of a new generation?
bool announces_generation(std::string_view record);

}  // namespace ramet::guest
