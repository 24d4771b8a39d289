// api/render.h - what the host tells -> JSON as api/openapi.yaml has it. Not here: errors (error_table.h), streams
// (exec_events.h). Thread: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <boost/json/fwd.hpp>

#include "host/images/image_diff.h"
#include "host/types.h"

namespace ramet::api {

// RFC 3339 in UTC with milliseconds.
std::string format_time(int64_t ns_since_epoch);
// "SIGTERM"; "SIG40" for numbers without a name.
std::string signal_name(uint32_t signal);

// JSON text in which 12.5 is written 12.5 and not 1.25E1 as Boost.JSON does.
std::string to_text(const boost::json::value& value);

boost::json::object to_json(const host::SandboxInfo& sandbox);
boost::json::object to_json(const host::SnapshotInfo& snapshot);
boost::json::object to_json(const host::SnapshotResult& result);
boost::json::object to_json(const host::TreeNode& node);
boost::json::object to_json(const host::ForkResult& result, std::string_view request_id);
boost::json::object to_json(const host::ProcessInfo& process);
boost::json::object to_json(const host::FileInfo& file);
boost::json::object to_json(const host::TemplateInfo& info);
boost::json::object to_json(const host::ImageInfo& image);
boost::json::object to_json(const host::ImageDiff& diff);
boost::json::object to_json(const host::CommittedDisk& disk);
boost::json::object to_json(const host::StoreReport& report);
boost::json::object to_json(const host::HostReport& report);
// exit_code (128 + signal when a signal ended it), signal, timed_out, duration_ms.
void add_exit(boost::json::object& into, const host::ExitInfo& exit);

}  // namespace ramet::api
