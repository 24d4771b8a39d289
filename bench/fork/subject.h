// bench/fork/subject.h - the two machines that bench_fork measures in turn, behind the same few verbs: ramet-vmm and the floor.
// Not here: which cases are run. One thread; the destructor ends all processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "floor/client.h"
#include "vm/harness/vm.h"

namespace ramet::bench {

struct ForkSample {
  double total_ms;  // request sent to first port exit of the child
  double stop_ms;   // vCPU of the parent out of KVM_RUN
  double fork_ms;   // fork(2) alone, in the parent
};

class Subject {
 public:
  virtual ~Subject() = default;
  // A fresh machine, forked from the zygote: generation 1, no dirty page.
  virtual Status fresh_machine() = 0;
  // The child of the present machine becomes the present one; ancestors stay alive.
  virtual Status descend() = 0;
  // One command of the dirty guest (tests/guests/lib/protocol.h).
  virtual Result<uint32_t> command(uint32_t kind, uint32_t value) = 0;
  // Forks; the child lives until end_children().
  virtual Result<ForkSample> fork() = 0;
  virtual Status end_children() = 0;
};

Result<std::unique_ptr<Subject>> make_ramet(const BaseShape& shape);
Result<std::unique_ptr<Subject>> make_floor(const BaseShape& shape);

}  // namespace ramet::bench
