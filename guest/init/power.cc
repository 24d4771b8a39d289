#include "init/power.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/input.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/file.h"

namespace ramet::guest {
namespace {

constexpr Milliseconds kDiskDeadline{20'000};

bool has_power_key(int fd) {
  unsigned char keys[KEY_MAX / 8 + 1] = {};
  return ::ioctl(fd, EVIOCGBIT(EV_KEY, sizeof keys), keys) >= 0 && (keys[KEY_POWER / 8] >> (KEY_POWER % 8)) & 1;
}

// Reaps until no child is left or the deadline. As init we are the parent of all orphans, so "no child" means "nobody".
bool reap_until(Deadline deadline) {
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid < 0 && errno == ECHILD) return true;
    if (pid > 0) continue;
    if (time_left(deadline).count() == 0) return false;
    ::usleep(2000);
  }
}

void end_processes(const PowerOff& how) {
  if (how.users) (void)how.users->set_frozen(false).has_value();
  ::kill(-1, SIGTERM);
  if (reap_until(deadline_after(how.grace))) return;
  ::kill(-1, SIGKILL);
  reap_until(deadline_after(Milliseconds(1000)));
}

void unmount_everything() {
  ::sync();
  const Result<std::string> mounts = read_file("/proc/self/mounts", 1u << 20);
  std::vector<std::string> targets;
  for (std::string_view rest = mounts ? std::string_view(*mounts) : ""; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const size_t begin = line.find(' ') + 1;
    targets.emplace_back(line.substr(begin, line.find(' ', begin) - begin));
  }
  for (auto target = targets.rbegin(); target != targets.rend(); ++target)
    if (*target != "/" && *target != "/proc") ::umount2(target->c_str(), UMOUNT_NOFOLLOW);
  ::mount(nullptr, "/", nullptr, MS_REMOUNT | MS_RDONLY, nullptr);
  ::sync();
}

}  // namespace

std::vector<UniqueFd> open_power_buttons() {
  std::vector<UniqueFd> buttons;
  DIR* dir = ::opendir("/dev/input");
  if (!dir) return buttons;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (!name.starts_with("event")) continue;
    UniqueFd fd(::open(("/dev/input/" + name).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (fd && has_power_key(fd.get())) buttons.push_back(std::move(fd));
  }
  ::closedir(dir);
  return buttons;
}

bool power_button_pressed(int fd) {
  bool pressed = false;
  input_event event{};
  while (::read(fd, &event, sizeof event) == sizeof event)
    pressed = pressed || (event.type == EV_KEY && event.code == KEY_POWER && event.value == 1);
  return pressed;
}

void power_off(const PowerOff& how) {
  end_processes(how);
  // In a child: a disk that does not answer must not keep the machine on.
  if (::fork() == 0) {
    unmount_everything();
    ::_exit(0);
  }
  reap_until(deadline_after(kDiskDeadline));
  ::reboot(how.reboot ? RB_AUTOBOOT : RB_POWER_OFF);
  for (;;) ::pause();
}

}  // namespace ramet::guest
