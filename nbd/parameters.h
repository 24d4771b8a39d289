// parameters.h - what is written behind the plugin's name on nbdkit's command line. Not here: what is done with it.
// Thread: values.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ramet::nbd {

inline constexpr std::chrono::seconds kMaxDaemonTimeout{24 * 3600};

struct Parameters {
  std::string socket;                       // the daemon's chunk socket
  std::string image;                        // a name in the daemon's catalogue
  std::string file;                         // or a raw file instead of both
  std::string overlay;                      // directory of the private overlay; empty: read-only
  std::chrono::seconds daemon_timeout{30};  // how long a read waits for a daemon that is away

  // Errors: kInvalid (unknown name, or a value it cannot have). Paths become absolute.
  Status set(std::string_view name, std::string_view value);
  // Whether they go together.   Errors: kInvalid.
  Status check() const;
};

// For `nbdkit --help`.
extern const char* const kParametersHelp;

}  // namespace ramet::nbd
