// guest/identity.h - makes this guest somebody: credited randomness, host name, machine id, wall clock. In that order, and it
// stops at the first failure: a guest that could not be reseeded must never be used.
// Not here: thawing user tasks afterwards and waiting for the VM generation (agent.cc). Thread: the reactor's; nothing here may
// block on the disk, so what must be files lives on /run (init/mounts.cc binds them over the image's).
#pragma once

#include <string>

#include "abi/agent.pb.h"
#include "base/clock.h"
#include "base/result.h"

namespace ramet::guest {

inline constexpr size_t kMinEntropyBytes = 32, kMaxEntropyBytes = 4096;
inline constexpr const char* kMachineIdFile = "/run/ramet/machine-id";

// Requires: this machine is ours (we are its init). Fills what was done.
// Errors: kInvalid (field out of range; nothing done), kPermission with "entropy" (not credited), else by errno.
Status validate(const abi::Identify& request);
Status reseed(const std::string& entropy);
// `age`: how long ago the request came, so that its wall clock is still right.
Status apply_identity(const abi::Identify& request, Nanoseconds age, abi::Identified& done);

// Whether a name service of the image (libnss-myhostname) resolves the host name whatever it is.
bool name_service_knows_host();
// Makes the host name resolvable where no name service does. Blocks: for a worker.
int update_hosts_file(const std::string& hostname);

}  // namespace ramet::guest
