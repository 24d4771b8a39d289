// guest/init/init.h - process 1: from the first instruction in the initramfs to the power-off. Never returns.
// Not here: the agent (service.h). Thread: the only one.
#pragma once

namespace ramet::guest {

[[noreturn]] void run_init();

}  // namespace ramet::guest
