// guest/port.h - carries one connection to a TCP port of the guest itself; a worker process. Memory: one chunk per direction.
#pragma once

#include <cstdint>

#include "channel.h"

namespace ramet::guest {

int run_port_connection(uint32_t port, Channel& channel);

}  // namespace ramet::guest
