// host/snapshot_details.h - what this host notes of a snapshot beside its content: the `details` of its record
// (docs/formats/snapshot.md), a JSON object. Unknown members are kept out, missing ones have their default, so that an older
// record can be read. Not here: the record, the content (src/commit). Thread: values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "host/types.h"

namespace ramet::host {

struct SnapshotDetails {
  SnapshotInfo info;
  std::string template_digest;
  std::string paused;                 // the sandbox whose saved state it is; empty: a user asked for it
  int64_t time_left_ns = 0;           // of that sandbox, when it was paused; 0: it may live as long as it wants
  std::vector<uint32_t> working_set;  // chunks of its memory that a machine waited for first, in that order
  bool captured = false;              // a template's machine after its boot, which snapshots stand on; nobody's
  std::string saved_as;               // the template that it is, of that name; empty: none
  bool deleted = false;               // nobody may use it any more, but something still stands on it
};

// Of a machine of that size and template as it is now: all that follows from what is known of it.
SnapshotDetails details_of(const SandboxInfo& machine, const std::string& template_digest);

// The processor's name; machines of one are not started on another.
std::string cpu_model_here();

// Seconds from now; 0: until it is deleted.
std::optional<int64_t> kept_until(uint64_t seconds);

std::string encode_details(const SnapshotDetails& details);
// Errors: kCorrupt.
Result<SnapshotDetails> decode_details(std::string_view json);

}  // namespace ramet::host
