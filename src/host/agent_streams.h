// host/agent_streams.h - streams.h over an AgentChannel: commands and files of a guest.
// Not here: finding the guest. Thread: as streams.h says.
#pragma once

#include <memory>

#include "host/agent_client.h"
#include "host/streams.h"

namespace ramet::host {

// How long requests that the agent answers at once may take.
using AgentPatience = Milliseconds;

// `use`: let go of when the stream is destroyed.
using Use = std::shared_ptr<const void>;

Result<std::unique_ptr<ExecStream>> start_exec(UniqueFd stream, Use use, const ExecOptions& options, AgentPatience patience);
Result<std::unique_ptr<ExecStream>> start_attach(UniqueFd stream, Use use, uint32_t pid, uint64_t stdout_offset,
                                                 uint64_t stderr_offset, AgentPatience patience);
// The first piece was read already: a missing file fails here.
Result<std::unique_ptr<FileReader>> start_read(UniqueFd stream, Use use, const std::string& path, const ReadOptions& options,
                                               AgentPatience patience);
Result<std::unique_ptr<FileWriter>> start_write(UniqueFd stream, Use use, const std::string& path, const WriteOptions& options,
                                                AgentPatience patience);

FileInfo file_info_of(const abi::FileInfo& info);
// Errors: kInvalid (not absolute, empty, longer than 4096 bytes, or with a NUL).
Status check_guest_path(const std::string& path);

}  // namespace ramet::host
