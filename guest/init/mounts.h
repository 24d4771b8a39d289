// guest/init/mounts.h - the way from the initramfs to the root file system, and what is mounted on it.
// Thread: init's only one. Errors: by errno, the message names device and mount point.
#pragma once

#include <string>

#include "base/result.h"
#include "init/machine.h"

namespace ramet::guest {

// /proc, /sys, /dev (devtmpfs). Mounted already is a success.
Status mount_kernel_file_systems();
// Waits for the device, mounts it, deletes the initramfs, moves the mount to / and enters it.
Status enter_root(const KernelOptions& kernel);
// /dev/pts, /dev/shm, /run, cgroup2; /tmp stays on the disk, with its usual mode.
Status mount_run_time_file_systems();
// A file on /run over /etc/machine-id, so that Identify never waits for the disk.
Status bind_machine_id();

}  // namespace ramet::guest
