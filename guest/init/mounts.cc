#include "init/mounts.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "identity.h"

namespace ramet::guest {
namespace {

constexpr const char* kNewRoot = "/newroot";
constexpr Milliseconds kRootDeviceDeadline{20'000};

struct Mount {
  const char* source;
  const char* target;
  const char* type;
  unsigned long flags;
  const char* data;
};

constexpr unsigned long kNoExecs = MS_NOSUID | MS_NODEV | MS_NOEXEC;

Status mount_one(const Mount& m) {
  if (::mkdir(m.target, 0755) < 0 && errno != EEXIST) return fail_errno(std::string("create ") + m.target);
  if (::mount(m.source, m.target, m.type, m.flags, m.data) < 0 && errno != EBUSY)
    return fail_errno(std::string("mount ") + m.type + " on " + m.target);
  return {};
}

Status wait_for_device(const std::string& device) {
  const Deadline deadline = deadline_after(kRootDeviceDeadline);
  while (::access(device.c_str(), F_OK) < 0) {
    if (time_left(deadline).count() == 0)
      return fail(ErrorKind::kNotFound,
                  device + " did not appear within " + std::to_string(kRootDeviceDeadline.count()) + " ms");
    ::usleep(1000);
  }
  return {};
}

// Everything on the initramfs itself; other mounts are left alone. Its memory is the guest's for ever otherwise.
void delete_tree(int dir, dev_t device) {
  DIR* d = ::fdopendir(dir);
  if (!d) return;
  while (const dirent* entry = ::readdir(d)) {
    const char* name = entry->d_name;
    if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
    struct stat st {};
    if (::fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_dev != device) continue;
    if (S_ISDIR(st.st_mode)) {
      const int child = ::openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (child >= 0) delete_tree(child, device);
      ::unlinkat(dir, name, AT_REMOVEDIR);
    } else {
      ::unlinkat(dir, name, 0);
    }
  }
  ::closedir(d);
}

void free_initramfs() {
  struct statfs fs {};
  struct stat st {};
  if (::statfs("/", &fs) < 0 || (fs.f_type != RAMFS_MAGIC && fs.f_type != TMPFS_MAGIC) || ::stat("/", &st) < 0) return;
  const int root = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root >= 0) delete_tree(root, st.st_dev);
}

bool is_on_memory(const char* path) {
  struct statfs fs {};
  return ::statfs(path, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

}  // namespace

Status mount_kernel_file_systems() {
  TRY(mount_one({"proc", "/proc", "proc", kNoExecs, nullptr}));
  TRY(mount_one({"sysfs", "/sys", "sysfs", kNoExecs, nullptr}));
  return mount_one({"devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755"});
}

Status enter_root(const KernelOptions& kernel) {
  TRY(wait_for_device(kernel.root_device));
  TRY(mount_one({kernel.root_device.c_str(), kNewRoot, kernel.root_type.c_str(), MS_RELATIME, nullptr}));
  // Those of the initramfs are not needed any more; the kernel's are mounted anew inside.
  for (const char* target : {"/dev", "/sys", "/proc"}) ::umount2(target, MNT_DETACH);
  free_initramfs();
  if (::chdir(kNewRoot) < 0) return fail_errno("enter the root file system");
  if (::mount(".", "/", nullptr, MS_MOVE, nullptr) < 0) return fail_errno("move the root file system");
  if (::chroot(".") < 0 || ::chdir("/") < 0) return fail_errno("change the root");
  return {};
}

Status mount_run_time_file_systems() {
  const std::vector<Mount> mounts = {
      {"devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666"},
      {"tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"},
      {"tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=20%"},
      {"tmpfs", "/run/lock", "tmpfs", kNoExecs, "mode=1777,size=5m"},
      {"cgroup2", "/sys/fs/cgroup", "cgroup2", kNoExecs, "nsdelegate,memory_recursiveprot"},
  };
  Status first_failure;
  for (const Mount& m : mounts) {
    const Status mounted = mount_one(m);
    if (!mounted && first_failure) first_failure = mounted;
  }
  for (const auto& [target, link] : {std::pair("/proc/self/fd", "/dev/fd"), std::pair("/proc/self/fd/0", "/dev/stdin"),
                                     std::pair("/proc/self/fd/1", "/dev/stdout"), std::pair("/proc/self/fd/2", "/dev/stderr")})
    (void)!::symlink(target, link);
  ::mkdir("/tmp", 01777);
  ::chmod("/tmp", 01777);
  return first_failure;
}

Status bind_machine_id() {
  if (!is_on_memory("/run")) return fail(ErrorKind::kUnsupported, "/run is not in memory");
  TRY(make_directories("/run/ramet", 0755));
  {
    const Result<std::string> present = read_file("/etc/machine-id", 64);
    TRY_ASSIGN(const UniqueFd file, open_file(kMachineIdFile, O_WRONLY | O_CREAT | O_TRUNC, 0444));
    if (present) TRY(write_all(file.get(), as_bytes(*present)));
  }
  TRY(open_file("/etc/machine-id", O_RDONLY | O_CREAT, 0444));
  for (const char* target : {"/etc/machine-id", "/var/lib/dbus/machine-id"}) {
    struct stat st {};
    if (::lstat(target, &st) < 0 || !S_ISREG(st.st_mode)) continue;  // D-Bus's is a link to the first on Debian
    if (::mount(kMachineIdFile, target, nullptr, MS_BIND, nullptr) < 0) return fail_errno(std::string("bind ") + target);
  }
  return {};
}

}  // namespace ramet::guest
