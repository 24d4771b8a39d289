// kvm/probe.h - is this /dev/kvm usable? A KVM may open and yet interpret every instruction of an ordinary kernel (paravirtual
// or emulated ones do): only timing a short loop in a 64-bit guest tells. Thread: call while single-threaded (it forks a
// helper).
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace ramet::kvm {

struct ProbeReport {
  bool usable = false;
  std::string reason;  // one sentence for people, also when usable
  double loop_ns = 0;  // time per loop iteration in the guest; 0 when it never ended
  bool device_opens = false;
};

// Never fails: what goes wrong is the report. Takes at most `limit`.
ProbeReport probe(const std::string& device = "/dev/kvm", Milliseconds limit = Milliseconds(3000));

}  // namespace ramet::kvm
