// guest/files/operations.h - the file operations of the agent, each a worker process that may block and acts as the named user.
// Memory is bounded by a frame and a chunk whatever the size of a file. Errors are by errno with the path in the message.
// Not here: the process around them (worker list in agent.cc). Thread: the worker's only one.
#pragma once

#include "abi/agent.pb.h"
#include "base/result.h"
#include "channel.h"

namespace ramet::guest {

bool is_file_operation(const abi::Request& request);
// Runs the operation and sends its last event. The answer is the worker's exit code.
int run_file_operation(const abi::Request& request, Channel& channel);

// One per operation; `answer` is what a success sends last.
Status read_file_to(const abi::ReadFile& request, Channel& channel, abi::Event& answer);
Status write_file_from(const abi::WriteFile& request, Channel& channel, abi::Event& answer);
Status list_directory(const abi::ListDir& request, Channel& channel);
Status stat_file(const abi::StatFile& request, abi::Event& answer);
Status make_directory(const abi::MakeDir& request);
Status move_file(const abi::MoveFile& request);
Status remove_file(const abi::RemoveFile& request);

// Absolute, no zero byte, not too long. Errors: kInvalid.
Status check_path(const std::string& path);
// Missing parents of `path`, mode 0755.
Status make_parents(const std::string& path);
std::string parent_of(const std::string& path);

}  // namespace ramet::guest
