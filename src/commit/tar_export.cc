#include "commit/tar_export.h"

#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "base/file.h"
#include "commit/disk_asks.h"
#include "commit/program.h"

namespace ramet::commit {
namespace {

// Sanitizers map more than any limit that would make sense.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kAddressSpace = UINT64_MAX;
#else
constexpr uint64_t kAddressSpace = 1ull << 30;
#endif

// Data is at most that of the disk, for each file there are headers.
uint64_t most_tar_bytes(uint64_t disk_bytes) { return 2 * disk_bytes + (1ull << 30); }

Status read_blocks(image::Manifest& manifest, const chunk::Store& store, image::BlockRange range, std::span<std::byte> out) {
  while (range.count > 0) {
    const uint64_t within = range.first % image::kChunkBlocks;
    const uint64_t blocks = std::min(range.count, image::kChunkBlocks - within);
    const std::span<std::byte> part = out.first(blocks * image::kBlockBytes);
    TRY_ASSIGN(const Digest name, manifest.chunk(range.first / image::kChunkBlocks));
    if (name == image::kZeros)
      std::ranges::fill(part, std::byte{0});
    else
      TRY(store.read(name, static_cast<uint32_t>(within), part));
    range = {range.first + blocks, range.count - blocks};
    out = out.subspan(part.size());
  }
  return {};
}

// Answers a process's asks on a thread of its own, from the store.
class Answering {
 public:
  Answering(int socket, image::Manifest& manifest, const chunk::Store& store)
      : socket_(socket), thread_([this, &manifest, &store] {
          const auto read = [&](image::BlockRange range, std::span<std::byte> out) {
            return read_blocks(manifest, store, range, out);
          };
          result_ = answer_asks(socket_, manifest.root().blocks, read);
          ::shutdown(socket_, SHUT_RDWR);  // whoever asks waits no longer
        }) {}
  ~Answering() { end(); }
  // Requires: the process has ended.
  Result<std::optional<Error>> end() {
    ::shutdown(socket_, SHUT_RD);  // what was said before can still be read
    if (thread_.joinable()) thread_.join();
    return result_;
  }

 private:
  const int socket_;
  Result<std::optional<Error>> result_ = std::optional<Error>();  // the thread's, until it is joined
  std::thread thread_;
};

Status tell(int file, const OnProgress& progress) {
  TRY_ASSIGN(const uint64_t bytes, file_size(file));
  if (progress) progress({bytes, 0, "pack"});
  return {};
}

}  // namespace

Status export_tar(TarUse use, image::Manifest& manifest, const chunk::Store& store, int file, const OnProgress& progress,
                  const ImageLimits& limits) {
  TRY(limits.admit(kAdmitBytes));
  TRY_ASSIGN(const std::string program, own_program("ramet-files"));
  TRY_ASSIGN(SocketPair sockets, make_socket_pair(SOCK_STREAM));
  const uint64_t blocks = manifest.root().blocks;
  Answering answering(sockets.a.get(), manifest, store);
  const Status done = run_program({.argv = {program, std::to_string(sockets.b.get()), std::to_string(blocks),
                                            std::to_string(file), std::string(name_of(use))},
                                   .files = {sockets.b.get(), file},
                                   .max_file_bytes = most_tar_bytes(blocks * image::kBlockBytes),
                                   .address_space_bytes = kAddressSpace,
                                   .time = limits.program_time,
                                   .on_tick = [&]() -> Status {
                                     TRY(tell(file, progress));
                                     return limits.admit(kAdmitBytes);
                                   }});
  sockets.b.reset();
  const Result<std::optional<Error>> said = answering.end();
  if (!done && done.error().kind() != ErrorKind::kInvalid) return done;  // not the process's own end, nor what it left unsaid
  if (!said) return tl::unexpected<Error>(said.error());
  if (*said) return tl::unexpected<Error>(**said);
  TRY(done);
  return tell(file, progress);
}

}  // namespace ramet::commit
