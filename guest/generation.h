// guest/generation.h - has this machine become another one? The kernel's vmgenid driver reports a new VM generation by a uevent,
// after it has reseeded its random numbers; we count them. A lost report (socket overrun) counts as a change.
// Not here: what to do about it (freezer.h, identity.h). Thread: the reactor's.
#pragma once

#include <cstdint>
#include <functional>

#include "base/unique_fd.h"
#include "reactor.h"

namespace ramet::guest {

class GenerationWatch {
 public:
  explicit GenerationWatch(Reactor& reactor);

  // True when a change would be noticed: the socket is open and the driver is bound to a device.
  bool reliable() const;
  // Changes since boot. Reads what the kernel has queued first.
  uint32_t changes();
  // Called after each change.
  void set_on_change(std::function<void()> callback) { on_change_ = std::move(callback); }

 private:
  void drain();

  UniqueFd socket_;
  Watch watch_;
  uint32_t changes_ = 0;
  std::function<void()> on_change_;
};

}  // namespace ramet::guest
