#include "base/userfault.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "base/file.h"

namespace ramet {
namespace {

constexpr char kDevice[] = "/dev/userfaultfd";

}  // namespace

Result<UniqueFd> open_userfault_device() {
  Result<UniqueFd> device = open_file(kDevice, O_RDWR | O_CLOEXEC);
  if (device || device.error().err() != ENOENT) return device;
  return fail(ErrorKind::kUnsupported, std::string("this kernel has no ") + kDevice);
}

Result<UniqueFd> create_userfault(int device) {
  UniqueFd fd(::ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail_errno("create a userfault descriptor");
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_MISSING_SHMEM;
  if (::ioctl(fd.get(), UFFDIO_API, &api) < 0) return fail_errno("ask for faults of memory files");
  return fd;
}

Status watch_faults(int userfault, std::span<std::byte> range) {
  uffdio_register wanted{};
  wanted.range = {reinterpret_cast<uint64_t>(range.data()),
                  range.size()};  // Safety: an address for the kernel, not followed here
  wanted.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (::ioctl(userfault, UFFDIO_REGISTER, &wanted) < 0) return fail_errno("watch faults of guest memory");
  return {};
}

bool is_userfault(int fd) {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), unknown) == "anon_inode:[userfaultfd]";
}

Result<std::optional<uint64_t>> next_fault(int userfault) {
  uffd_msg message;
  iovec into{&message, sizeof message};
  // Whoever gave us the descriptor may have made it a blocking one since.
  ssize_t n = ::preadv2(userfault, &into, 1, -1, RWF_NOWAIT);
  if (n < 0 && (errno == EOPNOTSUPP || errno == EINVAL)) n = ::read(userfault, &message, sizeof message);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<uint64_t>();
  if (n < 0) return fail_errno("read a fault");
  if (n != sizeof message) return fail(ErrorKind::kCorrupt, "a fault of " + std::to_string(n) + " bytes");
  if (message.event != UFFD_EVENT_PAGEFAULT) return std::optional<uint64_t>();
  const uint64_t address = message.arg.pagefault.address;  // of a packed struct
  return std::optional<uint64_t>(address);
}

Status wake_faults(int userfault, uint64_t address, uint64_t length) {
  uffdio_range range{address, length};
  if (::ioctl(userfault, UFFDIO_WAKE, &range) < 0) return fail_errno("wake who waits for memory");
  return {};
}

}  // namespace ramet
