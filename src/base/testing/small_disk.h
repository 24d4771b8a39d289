// base/testing/small_disk.h - a file system of a few MiB that a test really fills. It is mounted in a mount namespace of its
// own, so that nothing of it is left whatever happens there. Not in the product. Thread: one test; threads that write to it
// while it is being filled may leave it less than full.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/file.h"

namespace ramet::testing {

class SmallDisk {
 public:
  // This process gets a mount namespace of its own.   Null: not on this machine, errno says why.
  static std::unique_ptr<SmallDisk> mount(const std::string& path, uint64_t bytes) {
    std::filesystem::create_directories(path);
    if (::unshare(::getuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0 ||
        ::mount("small", path.c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) < 0)
      return nullptr;
    return std::unique_ptr<SmallDisk>(new SmallDisk(path));
  }
  ~SmallDisk() { EXPECT_EQ(::umount2(path_.c_str(), MNT_DETACH), 0); }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  const std::string& path() const { return path_; }
  uint64_t free_bytes() const {
    struct statvfs v {};
    EXPECT_EQ(::statvfs(path_.c_str(), &v), 0);
    return static_cast<uint64_t>(v.f_bavail) * v.f_frsize;
  }
  // Somebody else takes all there is, but for so many bytes. Whole pages.
  void fill(uint64_t but_bytes = 0) {
    const UniqueFd file = open_file(ballast(), O_RDWR | O_CREAT, 0600).value();
    uint64_t size = file_size(file.get()).value();
    for (uint64_t free = free_bytes(); free > but_bytes; free = free_bytes()) {
      if (::fallocate(file.get(), 0, static_cast<off_t>(size), static_cast<off_t>(free - but_bytes)) == 0)
        size += free - but_bytes;
      else if (errno != ENOSPC && errno != EINTR)
        FAIL() << "fill " << path_ << ": " << strerror(errno);
    }
  }
  void free() { std::filesystem::remove(ballast()); }
  // Paths of all files, from here; what fills it is none.
  std::set<std::string> files() const {
    std::set<std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_))
      if (!entry.is_directory() && entry.path() != ballast()) out.insert(entry.path().lexically_relative(path_));
    return out;
  }

 private:
  explicit SmallDisk(std::string path) : path_(std::move(path)) {}
  std::string ballast() const { return path_ + "/somebody-elses"; }
  const std::string path_;
};

// Skips the test where no file system can be mounted.
inline void on_a_small_disk(const std::string& path, uint64_t bytes, const std::function<void(SmallDisk&)>& use) {
  constexpr int kNoNamespaces = 77;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::unique_ptr<SmallDisk> disk = SmallDisk::mount(path, bytes);
    if (!disk) ::_exit(kNoNamespaces);
    try {
      use(*disk);
    } catch (const std::exception& e) {  // of value() where there is an error
      ADD_FAILURE() << e.what();
    }
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespaces) GTEST_SKIP() << "no mount namespaces on this machine";
  EXPECT_EQ(status, 0);
}

// Tries `work` with no byte free, then with a page more each time, until it succeeds: it fails at every write it has. After
// each failure the space is freed again, and `check` looks at what is left.   Requires: `work` says kNoSpace when it fails.
inline void fail_at_every_write(SmallDisk& disk, const std::function<Status()>& work, const std::function<void()>& check,
                                uint64_t step_bytes = 4096) {
  int failures = 0;
  for (uint64_t room = 0;; room += step_bytes) {
    disk.fill(room);
    const Status done = work();
    disk.free();
    if (done) break;
    SCOPED_TRACE("with " + std::to_string(room) + " bytes free: " + done.error().to_string());
    EXPECT_EQ(done.error().kind(), ErrorKind::kNoSpace);
    check();
    failures++;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(failures, 0) << "it never failed";
  ::testing::Test::RecordProperty("failures", failures);
}

}  // namespace ramet::testing
