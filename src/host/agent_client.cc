#include "host/agent_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/file.h"
#include "base/socket.h"

namespace ramet::host {
namespace {

ErrorKind kind_of(abi::ErrorCode code) {
  switch (code) {
    case abi::ERROR_INVALID: return ErrorKind::kInvalid;
    case abi::ERROR_NOT_FOUND: return ErrorKind::kNotFound;
    case abi::ERROR_EXISTS: return ErrorKind::kExists;
    case abi::ERROR_DENIED: return ErrorKind::kPermission;
    case abi::ERROR_CONFLICT: return ErrorKind::kConflict;
    case abi::ERROR_NO_SPACE: return ErrorKind::kNoSpace;
    case abi::ERROR_LIMIT: return ErrorKind::kUnavailable;
    case abi::ERROR_UNSUPPORTED: return ErrorKind::kUnsupported;
    case abi::ERROR_GUEST_NOT_QUIESCENT: return ErrorKind::kNotQuiescent;
    case abi::ERROR_IO: return ErrorKind::kIo;
    default: return ErrorKind::kIo;  // the guest's inner troubles are not ours
  }
}

}  // namespace

std::string printable(std::string_view bytes, size_t limit) {
  std::string out;
  size_t i = 0;
  while (i < bytes.size() && out.size() < limit) {
    const unsigned char c = static_cast<unsigned char>(bytes[i]);
    size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    bool good = n != 0 && i + n <= bytes.size();
    for (size_t k = 1; good && k < n; k++) good = (static_cast<unsigned char>(bytes[i + k]) & 0xc0) == 0x80;
    if (good && n == 3) {  // overlong forms and surrogates
      const unsigned char d = static_cast<unsigned char>(bytes[i + 1]);
      good = !(c == 0xe0 && d < 0xa0) && !(c == 0xed && d >= 0xa0);
    }
    if (good && n == 4) {
      const unsigned char d = static_cast<unsigned char>(bytes[i + 1]);
      good = !(c == 0xf0 && d < 0x90) && !(c == 0xf4 && d >= 0x90);
    }
    if (good && n == 1 && (c < 0x20 || c == 0x7f) && c != '\n' && c != '\t') good = false;
    if (!good) {
      if (c != '\r') out += '?';
      i++;
      continue;
    }
    if (out.size() + n > limit) break;
    out.append(bytes.substr(i, n));
    i += n;
  }
  return out;
}

AgentChannel::AgentChannel(UniqueFd stream) : stream_(std::move(stream)) { (void)set_nonblocking(stream_.get(), true); }

template <class Message>
Status AgentChannel::send_frame(const Message& message, Deadline deadline) {
  std::string frame;
  if (!abi::append_frame(message, frame))
    return fail(ErrorKind::kInvalid, "request of " + std::to_string(message.ByteSizeLong()) + " bytes, the limit is " +
                                         std::to_string(abi::kMaxFrameBytes));
  const std::lock_guard lock(send_mutex_);
  size_t done = 0;
  while (done < frame.size()) {
    if (cancelled_) return fail(ErrorKind::kCancelled, "cancelled by the caller");
    const ssize_t n = ::send(stream_.get(), frame.data() + done, frame.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
      done += static_cast<size_t>(n);
    else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      const Status ready = wait_for(stream_.get(), POLLOUT, deadline);
      if (!ready) {
        if (done != 0) cancel();  // half a frame is out: nothing sensible can follow
        return ready;
      }
    } else if (n < 0 && errno != EINTR) {
      if (cancelled_) return fail(ErrorKind::kCancelled, "cancelled by the caller");
      return fail(ErrorKind::kUnavailable, "the guest closed the connection");
    }
  }
  return {};
}

Status AgentChannel::send(const abi::Request& request, Deadline deadline) { return send_frame(request, deadline); }
Status AgentChannel::send(const abi::Input& input, Deadline deadline) { return send_frame(input, deadline); }

Result<abi::Event> AgentChannel::receive(Deadline deadline) {
  for (;;) {
    if (const std::optional<std::string_view> bytes = buffer_.next()) {
      abi::Event event;
      if (!event.ParseFromArray(bytes->data(), static_cast<int>(bytes->size()))) {
        cancel();
        return fail(ErrorKind::kCorrupt,
                    "the guest's agent sent " + std::to_string(bytes->size()) + " bytes that are no event");
      }
      return event;
    }
    if (buffer_.too_long()) {
      cancel();
      return fail(ErrorKind::kCorrupt,
                  "the guest's agent announced a frame over " + std::to_string(abi::kMaxFrameBytes) + " bytes");
    }
    char chunk[16 << 10];
    const ssize_t n = ::recv(stream_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n > 0) {
      buffer_.feed(chunk, static_cast<size_t>(n));
      continue;
    }
    if (cancelled_) return fail(ErrorKind::kCancelled, "cancelled by the caller");
    if (n == 0 || (n < 0 && errno == ECONNRESET)) return fail(ErrorKind::kUnavailable, "the guest closed the connection");
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return fail_errno("receive from the guest");
    TRY(wait_for(stream_.get(), POLLIN, deadline));
  }
}

Result<abi::Result> AgentChannel::receive_result(Deadline deadline) {
  TRY_ASSIGN(abi::Event event, receive(deadline));
  if (!event.has_result()) {
    cancel();
    return fail(ErrorKind::kCorrupt, "the guest's agent sent an event where its result was due");
  }
  return std::move(*event.mutable_result());
}

void AgentChannel::cancel() {
  cancelled_ = true;
  ::shutdown(stream_.get(), SHUT_RDWR);
}

Error error_of(const abi::Error& error) {
  const std::string text = printable(error.message(), 512);
  return Error(kind_of(error.code()), text.empty() ? "the guest's agent failed" : text, error.sys_errno());
}

Status check_result(const abi::Result& result) {
  if (!result.has_error() || result.error().code() == abi::ERROR_NONE) return {};
  return tl::unexpected<Error>(error_of(result.error()));
}

Result<abi::Result> agent_call(UniqueFd stream, const abi::Request& request, Deadline deadline) {
  AgentChannel channel(std::move(stream));
  TRY(channel.send(request, deadline));
  TRY_ASSIGN(abi::Result result, channel.receive_result(deadline));
  TRY(check_result(result));
  return result;
}

}  // namespace ramet::host
