#include "files/operations.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>

#include "base/file.h"
#include "files/file_info.h"
#include "users.h"

namespace ramet::guest {
namespace {

std::string user_of(const abi::Request& r) {
  switch (r.op_case()) {
    case abi::Request::kRead: return r.read().user();
    case abi::Request::kWrite: return r.write().user();
    case abi::Request::kList: return r.list().user();
    case abi::Request::kStat: return r.stat().user();
    case abi::Request::kMkdir: return r.mkdir().user();
    case abi::Request::kMove: return r.move().user();
    case abi::Request::kRemove: return r.remove().user();
    default: return "";
  }
}

Status run(const abi::Request& r, Channel& channel, abi::Event& answer) {
  TRY_ASSIGN(const User user, find_user(user_of(r)));
  TRY(become(user));
  switch (r.op_case()) {
    case abi::Request::kRead: return read_file_to(r.read(), channel, answer);
    case abi::Request::kWrite: return write_file_from(r.write(), channel, answer);
    case abi::Request::kList: return list_directory(r.list(), channel);
    case abi::Request::kStat: return stat_file(r.stat(), answer);
    case abi::Request::kMkdir: return make_directory(r.mkdir());
    case abi::Request::kMove: return move_file(r.move());
    case abi::Request::kRemove: return remove_file(r.remove());
    default: return fail(ErrorKind::kInternal, "not a file operation");
  }
}

}  // namespace

bool is_file_operation(const abi::Request& request) {
  return request.op_case() >= abi::Request::kRead && request.op_case() <= abi::Request::kRemove;
}

int run_file_operation(const abi::Request& request, Channel& channel) {
  abi::Event answer;
  const Status outcome = run(request, channel, answer);
  channel.finish(outcome, std::move(answer));
  return outcome ? 0 : 1;
}

Status check_path(const std::string& path) {
  if (path.empty() || path[0] != '/') return fail(ErrorKind::kInvalid, "path \"" + path + "\" is not absolute");
  if (path.find('\0') != std::string::npos) return fail(ErrorKind::kInvalid, "a path holds a zero byte");
  if (path.size() >= PATH_MAX)
    return fail(ErrorKind::kInvalid,
                "a path has " + std::to_string(path.size()) + " bytes, the limit is " + std::to_string(PATH_MAX - 1));
  return {};
}

std::string parent_of(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  if (last == std::string::npos) return "/";
  const size_t slash = path.rfind('/', last);
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

Status make_parents(const std::string& path) { return make_directories(parent_of(path), 0755); }

Status stat_file(const abi::StatFile& request, abi::Event& answer) {
  TRY(check_path(request.path()));
  struct stat st {};
  const int flags = request.follow() ? 0 : AT_SYMLINK_NOFOLLOW;
  if (::fstatat(AT_FDCWD, request.path().c_str(), &st, flags) < 0) return fail_errno("stat " + request.path());
  NameCache names;
  *answer.mutable_result()->mutable_file() = file_info(request.path(), AT_FDCWD, request.path().c_str(), st, names);
  return {};
}

Status make_directory(const abi::MakeDir& request) {
  TRY(check_path(request.path()));
  if (request.parents()) TRY(make_parents(request.path()));
  if (::mkdir(request.path().c_str(), 0755) < 0) {
    struct stat st {};
    const bool there = errno == EEXIST && ::stat(request.path().c_str(), &st) == 0 && S_ISDIR(st.st_mode);
    if (there && request.parents()) return {};
    return fail_errno("create directory " + request.path(), there ? EEXIST : errno);
  }
  if (request.permissions() != 0 && ::chmod(request.path().c_str(), request.permissions() & 07777) < 0)
    return fail_errno("set the mode of " + request.path());
  return {};
}

Status move_file(const abi::MoveFile& request) {
  TRY(check_path(request.from()));
  TRY(check_path(request.to()));
  const unsigned flags = request.no_replace() ? RENAME_NOREPLACE : 0;
  if (::renameat2(AT_FDCWD, request.from().c_str(), AT_FDCWD, request.to().c_str(), flags) == 0) return {};
  if (errno == EXDEV)
    return fail(ErrorKind::kUnsupported, request.from() + " and " + request.to() + " are on different file systems");
  return fail_errno("move " + request.from() + " to " + request.to());
}

}  // namespace ramet::guest
