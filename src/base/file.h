// base/file.h - files by descriptor: opening, whole reads and writes, durable replacement, pipes and socket pairs.
// Every function retries EINTR; partial transfers are completed. Not here: paths' meaning, formats. Thread: stateless.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet {

// open(2) with O_CLOEXEC added. Errors: by errno, message names the path.
Result<UniqueFd> open_file(const std::string& path, int flags, mode_t mode = 0);
// Opens the same file anew (own offset, given access mode) through /proc/self/fd.
Result<UniqueFd> reopen(int fd, int flags);
Result<uint64_t> file_size(int fd);

// Reads exactly out.size() bytes. Errors: kCorrupt when the file ends early, kIo.
Status read_exact(int fd, std::span<std::byte> out);
Status pread_exact(int fd, std::span<std::byte> out, uint64_t offset);
Status write_all(int fd, std::span<const std::byte> data);
Status pwrite_all(int fd, std::span<const std::byte> data, uint64_t offset);

// Whole small file. Errors: kInvalid when it is longer than max_bytes.
Result<std::string> read_file(const std::string& path, size_t max_bytes = 16u << 20);
// Writes a temporary beside it, syncs, renames, syncs the directory: the old or the new content survives a crash.
Status replace_file(const std::string& path, std::string_view content, mode_t mode = 0644);
Status sync_directory(const std::string& path);
Status make_directories(const std::string& path, mode_t mode = 0755);
// Those it made are there after lost power too. For what is made once, not per sandbox.
Status make_lasting_directories(const std::string& path, mode_t mode = 0755);

Result<UniqueFd> make_memfd(const char* name, uint64_t size_bytes);
struct SocketPair {
  UniqueFd a, b;
};
// socketpair(AF_UNIX, type | SOCK_CLOEXEC).
Result<SocketPair> make_socket_pair(int type);
struct Pipe {
  UniqueFd read_end, write_end;
};
Result<Pipe> make_pipe();
Status set_nonblocking(int fd, bool on);

inline std::span<const std::byte> as_bytes(std::string_view s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

}  // namespace ramet
