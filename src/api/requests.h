// api/requests.h - request bodies and query values as typed, checked structs. Every limit of api/openapi.yaml is enforced here.
// Not here: what a request does. Thread: pure functions. Errors: kInvalid with field, value and limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/json_fields.h"
#include "api/router.h"
#include "base/result.h"
#include "host/images/image_transfer.h"
#include "host/types.h"

namespace ramet::api {

inline constexpr int64_t kMaxTtlSeconds = 31'536'000;
inline constexpr int64_t kMaxKeepSeconds = 365 * 86'400;             // of a snapshot
inline constexpr uint64_t kMinDiskMib = 64, kMaxDiskMib = 4u << 20;  // of the file system that an import becomes
inline constexpr int64_t kMaxChildren = 100;                         // the host may be configured to fewer

struct ExecRequest {
  host::ExecOptions options;
  std::string stdin_bytes;  // written at once; then stdin is closed unless keep_stdin_open
  bool keep_stdin_open = false;
  bool stream = false;
};

struct MkdirRequest {
  std::string path;
  bool parents = false;
  uint32_t permissions = 0755;
  std::string user;
};
struct MoveRequest {
  std::string from, to;
  std::string user;
};

Result<host::CreateOptions> decode_create(std::string_view body);
Result<host::PatchOptions> decode_patch(std::string_view body);
Result<host::ForkOptions> decode_fork(std::string_view body);
Result<host::SnapshotOptions> decode_snapshot(std::string_view body);
Result<host::SnapshotPatch> decode_snapshot_patch(std::string_view body);
Result<host::SaveTemplateOptions> decode_save_template(std::string_view body);
// The id or name of the snapshot.
Result<std::string> decode_rollback(std::string_view body);
Result<ExecRequest> decode_exec(std::string_view body);
// Format, parent, tag and size of the file system, of an image's upload.
Result<host::ImportOptions> decode_import(const Target& target);
// The name of the image.
Result<std::string> decode_commit(std::string_view body);
Result<uint32_t> decode_signal(std::string_view body);
Result<host::WindowSize> decode_terminal_size(std::string_view body);
Result<MkdirRequest> decode_mkdir(std::string_view body);
Result<MoveRequest> decode_move(std::string_view body);

// Absolute, at most 4,095 bytes, no NUL.
Result<std::string> check_guest_path(std::string_view path, std::string_view field);
// `0644` and the like.
Result<uint32_t> decode_mode(std::string_view text);
// A process id of a path.
Result<uint32_t> decode_pid(std::string_view text);
// `TERM`, `SIGTERM` or `15`.
Result<uint32_t> decode_signal_name(std::string_view text);
// 0 when absent.
Result<uint64_t> decode_offset(std::string_view text, std::string_view field);
// Empty means the image's default user; the guest knows who that is.
Result<std::string> check_user_name(std::string_view name);
Status check_template_name(std::string_view name);
Status check_idempotency_key(std::string_view key);

}  // namespace ramet::api
