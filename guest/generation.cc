#include "generation.h"

#include <dirent.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace ramet::guest {
namespace {

constexpr int kSocketBufferBytes = 1 << 20;

// Fields are separated by zero bytes; vmgenid sends NEW_VMGENID=1 with KOBJ_CHANGE (drivers/virt/vmgenid.c).
bool announces_generation(std::string_view message) {
  return message.find(std::string_view("\0NEW_VMGENID=1", 14)) != std::string_view::npos;
}

bool has_device_link(const char* dir) {
  DIR* d = ::opendir(dir);
  if (!d) return false;
  bool found = false;
  while (const dirent* entry = ::readdir(d))
    if (entry->d_type == DT_LNK && std::strcmp(entry->d_name, "module") != 0) found = true;
  ::closedir(d);
  return found;
}

}  // namespace

GenerationWatch::GenerationWatch(Reactor& reactor)
    : socket_(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT)) {
  if (!socket_) return;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kSocketBufferBytes, sizeof kSocketBufferBytes);
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = 1;  // the kernel's own messages
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) socket_.reset();
  if (socket_) watch_ = reactor.watch(socket_.get(), EPOLLIN, [this](uint32_t) { drain(); });
}

bool GenerationWatch::reliable() const {
  return socket_ && (has_device_link("/sys/bus/platform/drivers/vmgenid") || has_device_link("/sys/bus/acpi/drivers/vmgenid"));
}

uint32_t GenerationWatch::changes() {
  drain();
  return changes_;
}

void GenerationWatch::drain() {
  if (!socket_) return;
  const uint32_t before = changes_;
  char buffer[8192];
  for (;;) {
    sockaddr_nl from{};
    socklen_t length = sizeof from;
    const ssize_t n = ::recvfrom(socket_.get(), buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == ENOBUFS) {
      changes_++;
      continue;
    }
    if (n <= 0) break;
    if (from.nl_pid == 0 && announces_generation({buffer, static_cast<size_t>(n)})) changes_++;
  }
  if (changes_ != before && on_change_) on_change_();
}

}  // namespace ramet::guest
