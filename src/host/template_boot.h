// host/template_boot.h - from a template's files to a captured machine, and from that to a zygote.
//
//   boot_template: builder VMM boots kernel + initrd + disk over a fresh overlay ── agent answers ── caches dropped ── Capture
//                  into memfds of ours ── builder ended ── memfds 0400, sealed, reopened read-only
//   start_zygote:  a new process by exec maps the image; it executes nothing and every create forks it
//
// The building process never serves anybody: what ran in it ends with it. Not here: when (zygotes.h).
// Thread: any; blocks for the time of a boot.
#pragma once

#include <memory>
#include <string>

#include "host/context.h"

namespace ramet::host {

struct MachineImage {
  MachineRow row;                             // what the rows of its machines say: template, size, bases; no id
  UniqueFd vmstate, memory_even, memory_odd;  // read-only, sealed
  std::shared_ptr<MemoryFiller> filler;       // of memory that comes from the store; the files are sealed when it is complete
  std::string zero_map;                       // of memory that came from the store; empty: as vmstate says
  std::shared_ptr<OpenImage> disk;            // whatever happens to its name
  std::shared_ptr<const void> hold;           // keeps the snapshot that it is until the rows of its machines do
  std::string overlay;                        // what the boot wrote to the disk; empty: nothing
  std::string builder;                        // row that holds `overlay` until a zygote's does
  uint64_t stored_bytes = 0;
};

// Errors: kUnavailable (no KVM; the guest did not come up, with the end of its console), kTimeout, kCorrupt, kNoSpace,
// kNoMemory.
Result<MachineImage> boot_template(const Context& context, const Template& source, uint32_t vcpus, uint64_t memory_mib);
Result<std::shared_ptr<Machine>> start_zygote(const Context& context, const MachineImage& image);

// Nobody can change it, or open it for writing, any more: read-only from now on.
Status seal_image_file(UniqueFd& file);

// The last lines of a console, for people.
std::string console_tail(const Context& context, const std::string& id, size_t limit = 1200);

}  // namespace ramet::host
