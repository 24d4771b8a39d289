#include "init/init.h"

#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "abi/frame.h"
#include "base/file.h"
#include "base/log.h"
#include "cgroup.h"
#include "init/machine.h"
#include "init/modules.h"
#include "init/mounts.h"
#include "init/power.h"
#include "service.h"

namespace ramet::guest {
namespace {

// A machine that cannot become usable says why and goes away, instead of hanging until somebody's timeout.
template <typename T>
T need(Result<T> result, std::string_view step) {
  if (result) {
    if constexpr (std::is_void_v<T>)
      return;
    else
      return std::move(*result);
  }
  log_error("cannot " + std::string(step) + ": " + result.error().message());
  power_off({});
}

void want(const Status& result, std::string_view step) {
  if (!result) log_warn("cannot " + std::string(step) + ": " + result.error().message());
}

Result<UniqueFd> listen_vsock(uint32_t port) {
  UniqueFd s(::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!s) return fail_errno("vsock socket (is the module in the initramfs?)");
  sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_ANY;
  address.svm_port = port;
  if (::bind(s.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) return fail_errno("bind vsock port");
  if (::listen(s.get(), 128) < 0) return fail_errno("listen on vsock");
  return s;
}

void announce() {
  const std::string line = std::string(abi::kReadyLine) + "\n";
  (void)!::write(STDOUT_FILENO, line.data(), line.size());
}

}  // namespace

void run_init() {
  block_service_signals();
  need(mount_kernel_file_systems(), "mount /proc, /sys and /dev");
  open_console();
  const KernelOptions kernel = read_kernel_options();
  want(load_modules("/modules"), "load modules");
  need(enter_root(kernel), "mount the root file system");
  need(mount_kernel_file_systems(), "mount /proc, /sys and /dev");
  open_console();
  want(mount_run_time_file_systems(), "mount the run-time file systems");
  want(bind_machine_id(), "prepare /etc/machine-id");
  want(set_up_machine(), "set up the machine");
  Result<UserTasks> users = UserTasks::set_up_machine("/sys/fs/cgroup");
  if (!users) log_warn("commands run without cgroups and cannot be frozen: " + users.error().message());

  const std::vector<UniqueFd> buttons = open_power_buttons();
  ServiceOptions options;
  options.users = users ? &*users : nullptr;
  options.owns_machine = true;
  options.check_peer_cid = true;
  options.on_listening = announce;
  for (const UniqueFd& button : buttons) options.power_button_fds.push_back(button.get());
  const ServiceEnd end = run_service(need(listen_vsock(abi::kAgentPort), "listen for the host"), std::move(options));
  power_off({.reboot = end.reboot, .grace = end.grace, .users = users ? &*users : nullptr});
}

}  // namespace ramet::guest
