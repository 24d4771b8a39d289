// Faults of a private mapping of a memory file, answered by filling the file; what the kernel promises and we rely on.
#include "base/userfault.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <future>

#include "base/clock.h"
#include "base/file.h"
#include "base/mapped_region.h"
#include "base/socket.h"

namespace ramet {
namespace {

constexpr size_t kPage = 4096, kPages = 64;

class UserfaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<UniqueFd> device = open_userfault_device();
    if (!device) GTEST_SKIP() << device.error().to_string();
    device_ = *std::move(device);
    file_ = make_memfd("userfault-test", kPages * kPage).value();
  }
  std::span<std::byte> map() {
    // Safety: a private mapping of a file of this length, kept in regions_.
    regions_.push_back(
        MappedRegion::map(kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file_.get()).value());
    return {regions_.back().data(), kPages * kPage};
  }
  UniqueFd watched(std::span<std::byte> range) {
    UniqueFd fd = create_userfault(device_.get()).value();
    const Status done = watch_faults(fd.get(), range);
    EXPECT_TRUE(done) << done.error().to_string();
    return fd;
  }
  // The page that somebody waits for.
  static uint64_t wait_fault(int userfault, std::span<std::byte> range) {
    EXPECT_TRUE(wait_for(userfault, POLLIN, deadline_after(Milliseconds(5000))));
    const std::optional<uint64_t> address = next_fault(userfault).value();
    return address ? (*address - reinterpret_cast<uint64_t>(range.data())) / kPage : UINT64_MAX;
  }
  void fill(uint64_t page, std::byte value) {
    const std::vector<std::byte> bytes(kPage, value);
    ASSERT_TRUE(pwrite_all(file_.get(), bytes, page * kPage));
  }
  static Status wake(int userfault, std::span<std::byte> range) {
    return wake_faults(userfault, reinterpret_cast<uint64_t>(range.data()), range.size());
  }

  UniqueFd device_, file_;
  std::vector<MappedRegion> regions_;
};

TEST_F(UserfaultTest, WhoReadsAMissingPageWaitsAndGetsWhatIsFilledIn) {
  const std::span<std::byte> memory = map();
  const UniqueFd userfault = watched(memory);
  EXPECT_FALSE(next_fault(userfault.get()).value());
  std::future<std::byte> reader = std::async(std::launch::async, [&] { return memory[5 * kPage + 7]; });
  EXPECT_EQ(wait_fault(userfault.get(), memory), 5u);
  EXPECT_EQ(reader.wait_for(Milliseconds(50)), std::future_status::timeout);
  ASSERT_NO_FATAL_FAILURE(fill(5, std::byte{42}));
  ASSERT_TRUE(wake(userfault.get(), memory));
  EXPECT_EQ(reader.get(), std::byte{42});
  // What is there asks nobody.
  ASSERT_NO_FATAL_FAILURE(fill(6, std::byte{43}));
  EXPECT_EQ(memory[6 * kPage], std::byte{43});
  EXPECT_FALSE(next_fault(userfault.get()).value());
}

TEST_F(UserfaultTest, AFirstWriteGetsThePageToo) {
  const std::span<std::byte> memory = map();
  const UniqueFd userfault = watched(memory);
  std::future<void> writer = std::async(std::launch::async, [&] { memory[9 * kPage] = std::byte{1}; });
  EXPECT_EQ(wait_fault(userfault.get(), memory), 9u);
  ASSERT_NO_FATAL_FAILURE(fill(9, std::byte{42}));
  ASSERT_TRUE(wake(userfault.get(), memory));
  writer.get();
  EXPECT_EQ(memory[9 * kPage], std::byte{1});
  EXPECT_EQ(memory[9 * kPage + 1], std::byte{42});
  // Its own copy: the file has what was filled in.
  std::byte in_file;
  ASSERT_TRUE(pread_exact(file_.get(), {&in_file, 1}, 9 * kPage));
  EXPECT_EQ(in_file, std::byte{42});
}

TEST_F(UserfaultTest, SystemCallsWaitAsWell) {
  const std::span<std::byte> memory = map();
  const UniqueFd userfault = watched(memory);
  SocketPair pair = make_socket_pair(SOCK_STREAM).value();
  std::future<ssize_t> writer = std::async(std::launch::async, [&] { return ::write(pair.a.get(), memory.data(), 1); });
  EXPECT_EQ(wait_fault(userfault.get(), memory), 0u);
  ASSERT_NO_FATAL_FAILURE(fill(0, std::byte{42}));
  ASSERT_TRUE(wake(userfault.get(), memory));
  EXPECT_EQ(writer.get(), 1);
  std::byte got;
  EXPECT_EQ(::read(pair.b.get(), &got, 1), 1);
  EXPECT_EQ(got, std::byte{42});
}

// What a family of machines does: each process has its own descriptor, and what one brought all have.
TEST_F(UserfaultTest, AForkedChildHasItsOwnAndSharesThePages) {
  const std::span<std::byte> memory = map();
  SocketPair pair = make_socket_pair(SOCK_SEQPACKET).value();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const UniqueFd own = create_userfault(device_.get()).value();
    const bool watched = watch_faults(own.get(), memory).has_value();
    const std::array<int, 1> fds{own.get()};
    const bool sent =
        send_message(pair.b.get(), std::as_bytes(std::span("x", 1)), fds, deadline_after(Milliseconds(1000))).has_value();
    ::_exit(watched && sent && memory[3 * kPage] == std::byte{42} ? 0 : 1);
  }
  Received received = receive_message(pair.a.get(), 16, deadline_after(Milliseconds(5000))).value();
  ASSERT_EQ(received.fds.size(), 1u);
  EXPECT_TRUE(is_userfault(received.fds[0].get()));
  EXPECT_EQ(wait_fault(received.fds[0].get(), memory), 3u);
  ASSERT_NO_FATAL_FAILURE(fill(3, std::byte{42}));
  ASSERT_TRUE(wake(received.fds[0].get(), memory));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(UserfaultTest, TheLastDescriptorThatIsClosedWakesWhoStillWaits) {
  const std::span<std::byte> memory = map();
  UniqueFd userfault = watched(memory);
  std::future<std::byte> reader = std::async(std::launch::async, [&] { return memory[2 * kPage]; });
  EXPECT_EQ(wait_fault(userfault.get(), memory), 2u);
  ASSERT_NO_FATAL_FAILURE(fill(2, std::byte{42}));
  userfault.reset();
  EXPECT_EQ(reader.get(), std::byte{42});
}

TEST_F(UserfaultTest, OtherDescriptorsAreToldApart) {
  EXPECT_FALSE(is_userfault(file_.get()));
  EXPECT_FALSE(is_userfault(device_.get()));
  EXPECT_FALSE(is_userfault(-1));
  EXPECT_FALSE(create_userfault(file_.get()));
}

}  // namespace
}  // namespace ramet
