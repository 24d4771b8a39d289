#include "commit/disk_asks.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/endian.h"
#include "base/file.h"
#include "commit/file_tree.h"

namespace ramet::commit {
namespace {

struct Ask {
  le64 first, count;
};
static_assert(sizeof(Ask) == 16);
constexpr uint64_t kRefusal = UINT64_MAX;

// MSG_NOSIGNAL: a process that is gone is an error, not the end of us.
Status send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("send to the reader of a disk");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

// False: the other side has closed its end.
Result<bool> read_ask(int socket, Ask& ask) {
  const ssize_t n = TEMP_FAILURE_RETRY(::recv(socket, &ask, sizeof ask, MSG_WAITALL));
  if (n == 0) return false;
  if (n < 0) return errno == ECONNRESET ? Result<bool>(false) : Result<bool>(fail_errno("read what is asked of a disk"));
  if (n != sizeof ask) return fail(ErrorKind::kCorrupt, "half an ask for blocks");
  return true;
}

Result<Error> read_refusal(int socket, uint64_t bytes) {
  if (bytes < 2 || bytes > kMostSaidBytes)
    return fail(ErrorKind::kCorrupt,
                "a refusal of " + std::to_string(bytes) + " bytes, the limit is " + std::to_string(kMostSaidBytes));
  std::string text(bytes, '\0');
  TRY(read_exact(socket, std::as_writable_bytes(std::span(text))));
  const size_t line = std::min(text.find('\n'), text.size() - 1);
  const std::string_view message = std::string_view(text).substr(0, line), hint = std::string_view(text).substr(line + 1);
  return Error(ErrorKind::kInvalid, shown(message, kMostSaidBytes)).with_hint(shown(hint, kMostSaidBytes));
}

}  // namespace

Result<bool> AskedSource::read(image::BlockRange range, std::span<const iovec> to, image::Wait) const {
  if (!image::range_fits(range, blocks_)) return fail(ErrorKind::kInvalid, "block range is not on the disk");
  if (range.count > kMostAskedBlocks) return fail(ErrorKind::kInvalid, "more blocks at once than can be asked for");
  const Ask ask{range.first, range.count};
  TRY(write_all(socket_, std::as_bytes(std::span(&ask, 1))));
  for (const iovec& part : to) TRY(read_exact(socket_, {static_cast<std::byte*>(part.iov_base), part.iov_len}));
  return true;
}

void say_refusal(int socket, const Error& error) {
  std::string text = error.message() + "\n" + error.hint();
  text.resize(std::min(text.size(), kMostSaidBytes));
  const Ask head{kRefusal, text.size()};
  if (write_all(socket, std::as_bytes(std::span(&head, 1)))) static_cast<void>(write_all(socket, as_bytes(text)));
}

Result<std::optional<Error>> answer_asks(int socket, uint64_t disk_blocks, const ReadBlocks& read) {
  std::vector<std::byte> answer(kMostAskedBlocks * image::kBlockBytes);
  for (;;) {
    Ask ask;
    TRY_ASSIGN(const bool more, read_ask(socket, ask));
    if (!more) return std::optional<Error>();
    if (ask.first == kRefusal) {
      TRY_ASSIGN(Error refusal, read_refusal(socket, ask.count));
      return std::optional<Error>(std::move(refusal));
    }
    const image::BlockRange range{ask.first, ask.count};
    if (range.count == 0 || range.count > kMostAskedBlocks || !image::range_fits(range, disk_blocks))
      return fail(ErrorKind::kCorrupt,
                  "an ask for " + std::to_string(range.count) + " blocks at " + std::to_string(range.first));
    const std::span<std::byte> out = std::span(answer).first(range.count * image::kBlockBytes);
    TRY(read(range, out));
    TRY(send_all(socket, out));
  }
}

}  // namespace ramet::commit
