// vmm/devices/vmgenid/device.h - the VM generation id ("Virtual Machine Generation ID", Microsoft, 2012): 16 bytes of guest RAM
// and an ACPI notification that tells the guest's random number generator that it was copied. Not here: the AML around it
// (boot/). Thread: with vCPUs parked. Owner: the machine.
#pragma once

#include <array>
#include <functional>

#include "base/result.h"
#include "vmm/layout.h"
#include "vmm/memory/guest_memory.h"

namespace ramet::vmm {

using GenerationId = std::array<std::byte, layout::kGenerationIdBytes>;

class VmGenerationId {
 public:
  VmGenerationId(const GuestMemory& memory, std::function<void()> notify) : memory_(memory), notify_(std::move(notify)) {}

  // Before boot: the first id, nobody to notify.   Errors: kInvalid (RAM ends below the page).
  Status place(const GenerationId& id) const {
    if (!memory_.write(GuestAddr{layout::kGenerationIdPage}, id))
      return fail(ErrorKind::kInvalid, "guest memory has no room for the generation id");
    return {};
  }
  // A new id in a copy. Requires: LAPIC state is restored already, or the interrupt is lost.
  Status change(const GenerationId& id) const {
    TRY(place(id));
    notify_();
    return {};
  }

 private:
  const GuestMemory& memory_;
  const std::function<void()> notify_;
};

}  // namespace ramet::vmm
