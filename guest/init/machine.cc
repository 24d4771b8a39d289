#include "init/machine.h"

#include <fcntl.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"

namespace ramet::guest {
namespace {

Status loopback_up() {
  const UniqueFd s(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!s) return fail_errno("socket");
  ifreq request{};
  std::string("lo").copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (::ioctl(s.get(), SIOCGIFFLAGS, &request) < 0) return fail_errno("find the loopback interface");
  request.ifr_flags |= IFF_UP | IFF_RUNNING;
  if (::ioctl(s.get(), SIOCSIFFLAGS, &request) < 0) return fail_errno("bring the loopback interface up");
  return {};
}

Status first_host_name() {
  const Result<std::string> text = read_file("/etc/hostname", 1024);
  std::string name = text ? text->substr(0, text->find_first_of(" \t\n")) : "";
  if (name.empty()) name = "ramet";
  if (::sethostname(name.data(), std::min<size_t>(name.size(), 64)) < 0) return fail_errno("set the host name");
  return {};
}

Status protect_ourselves() {
  TRY_ASSIGN(const UniqueFd file, open_file("/proc/self/oom_score_adj", O_WRONLY));
  return write_all(file.get(), as_bytes("-1000"));
}

Status raise_limits() {
  const rlimit files{524288, 524288};
  if (::setrlimit(RLIMIT_NOFILE, &files) < 0) return fail_errno("raise the limit of open files");
  return {};
}

}  // namespace

KernelOptions parse_kernel_options(std::string_view rest) {
  KernelOptions options;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find_first_of(" \n"));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals + 1 == word.size()) continue;
    const std::string_view key = word.substr(0, equals);
    if (key == "ramet.root") options.root_device = word.substr(equals + 1);
    if (key == "ramet.rootfstype") options.root_type = word.substr(equals + 1);
  }
  return options;
}

KernelOptions read_kernel_options() {
  const Result<std::string> text = read_file("/proc/cmdline", 16u << 10);
  return text ? parse_kernel_options(*text) : KernelOptions{};
}

void open_console() {
  const UniqueFd console(::open("/dev/console", O_RDWR | O_NOCTTY | O_CLOEXEC));
  const int fd = console ? console.get() : ::open("/dev/null", O_RDWR | O_NOCTTY);
  for (int standard = 0; standard <= 2; standard++)
    if (fd >= 0 && fd != standard) ::dup2(fd, standard);
}

Status set_up_machine() {
  ::setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
  Status first_failure;
  for (const Status& step : {loopback_up(), first_host_name(), protect_ourselves(), raise_limits()})
    if (!step && first_failure) first_failure = step;
  return first_failure;
}

}  // namespace ramet::guest
