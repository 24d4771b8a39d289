// vmm/disk_setup.h - the disk of a machine as control messages describe it: descriptors out of a packet. Thread: stateless.
#pragma once

#include <memory>

#include "base/result.h"
#include "vmm/control/codec.h"
#include "vmm/devices/block/disk.h"

namespace ramet::vmm {

// Errors: kInvalid (a descriptor is missing).
Result<OverlayDescriptors> take_overlay(const OverlayFds& overlay, control::ReceivedFds& fds);
// Null: a machine without a disk.   Errors: kUnsupported (several disks), kInvalid, and those of Disk::open.
Result<std::unique_ptr<Disk>> open_disk(const Bootstrap& bootstrap, control::ReceivedFds& fds);

}  // namespace ramet::vmm
