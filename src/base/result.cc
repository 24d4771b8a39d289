#include "base/result.h"

#include <array>
#include <cstring>

namespace ramet {
namespace {

struct KindName {
  ErrorKind kind;
  std::string_view name;
};
constexpr std::array<KindName, 15> kKindNames = {{
    {ErrorKind::kInvalid, "invalid"},
    {ErrorKind::kNotFound, "not_found"},
    {ErrorKind::kExists, "exists"},
    {ErrorKind::kConflict, "conflict"},
    {ErrorKind::kNoSpace, "no_space"},
    {ErrorKind::kNoMemory, "no_memory"},
    {ErrorKind::kPermission, "permission"},
    {ErrorKind::kTimeout, "timeout"},
    {ErrorKind::kUnavailable, "unavailable"},
    {ErrorKind::kUnsupported, "unsupported"},
    {ErrorKind::kCorrupt, "corrupt"},
    {ErrorKind::kIo, "io"},
    {ErrorKind::kCancelled, "cancelled"},
    {ErrorKind::kNotQuiescent, "guest_not_quiescent"},
    {ErrorKind::kInternal, "internal"},
}};

}  // namespace

std::string_view kind_name(ErrorKind kind) {
  for (const KindName& k : kKindNames)
    if (k.kind == kind) return k.name;
  return "internal";
}

ErrorKind kind_from_name(std::string_view name) {
  for (const KindName& k : kKindNames)
    if (k.name == name) return k.kind;
  return ErrorKind::kInternal;
}

ErrorKind kind_of_errno(int err) {
  switch (err) {
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
    case ERANGE:
    case EDOM:
    case EILSEQ:
    case ENOTDIR:
    case EISDIR:
    case EFBIG: return ErrorKind::kInvalid;
    case ENOENT:
    case ESRCH:
    case ENXIO:
    case ENODEV: return ErrorKind::kNotFound;
    case EEXIST:
    case EADDRINUSE: return ErrorKind::kExists;
    case EBUSY:
    case ENOTEMPTY:
    case ETXTBSY:
    case EALREADY:
    case EISCONN: return ErrorKind::kConflict;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE: return ErrorKind::kNoSpace;
    case ENOMEM: return ErrorKind::kNoMemory;
    case EPERM:
    case EACCES:
    case EROFS: return ErrorKind::kPermission;
    case ETIMEDOUT:
    case EAGAIN:
    case ETIME: return ErrorKind::kTimeout;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
    case ECONNABORTED:
    case ENETUNREACH:
    case EHOSTUNREACH: return ErrorKind::kUnavailable;
    case ENOSYS:
    case EOPNOTSUPP:
    case ENOTTY: return ErrorKind::kUnsupported;
    case ECANCELED:
    case EINTR: return ErrorKind::kCancelled;
    case EBADMSG:
    case EUCLEAN: return ErrorKind::kCorrupt;
    default: return ErrorKind::kIo;
  }
}

Error Error::with_context(std::string_view operation) && {
  message_.insert(0, ": ");
  message_.insert(0, operation);
  return std::move(*this);
}

Error Error::with_hint(std::string hint) && {
  hint_ = std::move(hint);
  return std::move(*this);
}

std::string Error::to_string() const {
  std::string s(kind_name(kind_));
  s += ": ";
  s += message_;
  return s;
}

tl::unexpected<Error> fail_errno(std::string_view what) { return fail_errno(what, errno); }

tl::unexpected<Error> fail_errno(std::string_view what, int err) {
  char buf[128];
  std::string message(what);
  message += ": ";
  message += strerror_r(err, buf, sizeof buf);
  Error error(kind_of_errno(err), std::move(message), err);
  if (err == EMFILE || err == ENFILE)  // of this kind, but no matter of disks
    error =
        std::move(error).with_hint("Close what is not needed, or raise the limit of open files (`ulimit -n`, LimitNOFILE=).");
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace ramet
