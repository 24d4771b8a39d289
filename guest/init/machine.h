// guest/init/machine.h - the machine around the agent: kernel command line, console, loopback, host name, our own protection.
// Thread: init's only one.
#pragma once

#include <string>

#include "base/result.h"

namespace ramet::guest {

// ramet.root= and ramet.rootfstype= of the kernel command line. Requires: /proc is mounted.
struct KernelOptions {
  std::string root_device = "/dev/vda";
  std::string root_type = "ext4";
};
KernelOptions parse_kernel_options(std::string_view command_line);
KernelOptions read_kernel_options();

// Standard input, output and error become /dev/console.
void open_console();
// Loopback up, host name from /etc/hostname, limits, out-of-memory protection. Errors: the first, after all was tried.
Status set_up_machine();

}  // namespace ramet::guest
