// host/ids.h - random names of sandboxes, overlays and machines, and the check of names that come from outside.
// Thread: stateless.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace ramet::host {

// "sb-" + 13 characters of [a-z0-9] (67 bits): a legal host name, file name and cgroup name.
std::string new_id(std::string_view prefix);
// 32 hex digits, as /etc/machine-id wants them.
std::string new_machine_id();
// Bytes of the kernel's generator.
std::string random_bytes(size_t count);
// Names of templates: 1 to 64 of [a-z0-9._-], first one a letter or digit.   Errors: kInvalid.
Status check_template_name(std::string_view name);
// True for what new_id makes; anything else cannot name one of ours and must not become a path.
bool is_id(std::string_view id);

}  // namespace ramet::host
