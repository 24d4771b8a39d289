// guest/init/modules.h - loads the kernel modules that the initramfs brings: files DIR/NAME, in the order of the lines of
// DIR/order. Errors: the first failure, after all were tried; a module that is loaded or built in already is a success.
#pragma once

#include <string>

#include "base/result.h"

namespace ramet::guest {

Status load_modules(const std::string& dir);

}  // namespace ramet::guest
