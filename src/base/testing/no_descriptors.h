// base/testing/no_descriptors.h - a process without a descriptor left, until release(). Not in the product.
// Thread: one; what other threads close meanwhile they can open again.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace ramet::testing {

class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int lowest_free = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get();
    const rlimit few = {.rlim_cur = static_cast<rlim_t>(lowest_free) + 16, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    take_all();
  }
  ~NoDescriptors() { release(); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

  // Gives up so many.
  void spare(size_t count) { taken_.resize(taken_.size() - count); }
  void take_all() {
    for (UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); fd; fd.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC)))
      taken_.push_back(std::move(fd));
    EXPECT_EQ(errno, EMFILE);
  }
  void release() {
    taken_.clear();
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0);
  }

 private:
  rlimit before_{};
  std::vector<UniqueFd> taken_;
};

// Of all threads of this process, during that time.
inline Milliseconds cpu_time_during(Milliseconds time) {
  const auto now = [] {
    timespec t;
    EXPECT_EQ(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return std::chrono::seconds(t.tv_sec) + Nanoseconds(t.tv_nsec);
  };
  const Nanoseconds before = now();
  std::this_thread::sleep_for(time);
  return std::chrono::duration_cast<Milliseconds>(now() - before);
}

}  // namespace ramet::testing
