// guest/error_table.h - the one place where an Error of ours becomes an abi::Error. Thread: pure functions.
#pragma once

#include "abi/agent.pb.h"
#include "base/result.h"

namespace ramet::guest {

abi::ErrorCode code_of(const Error& error);
abi::Event result_event(const Error& error);
abi::Event success_event();

}  // namespace ramet::guest
