// Commits of memory when something goes wrong: processes that are hostile or end, a committer that is killed, a full disk.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <array>
#include <random>
#include <set>

#include "base/testing/small_disk.h"
#include "commit/testing/memory_fixture.h"

namespace ramet::commit {
namespace {

using chunk::testing::fill_with_noise;
using testing::Captured;
using testing::FrozenProcess;
using testing::PrivateRam;
using testing::scattered;

constexpr uint64_t kMiB = 1ull << 20, kPage = 4096, kBlock = image::kRamBlockBytes;

bool every_other(uint64_t block) { return block % 2 == 0; }
bool all(uint64_t) { return true; }

class MemoryFaultTest : public testing::MemoryFixture {};

TEST_F(MemoryFaultTest, AProcessThatHasEndedIsAnError) {
  const image::ManifestRoot base = image_with_noise(8 * kMiB, all);
  const PrivateRam ram = mapped(base);
  FrozenProcess process;
  const ProcessMemory memory = process.memory(ram.data(), ram.size()).value();
  process.kill();
  EXPECT_EQ(try_commit(memory, base).error().kind(), ErrorKind::kUnavailable);
  EXPECT_EQ(
      ProcessMemory::open({.pid = ::getpid(), .pidfd = process.pidfd(), .address = 0, .size_bytes = kPage}).error().kind(),
      ErrorKind::kUnavailable)
      << "the pid is somebody else's now";
}

TEST_F(MemoryFaultTest, AProcessThatEndsMeanwhileIsAnErrorAndLeavesNothing) {
  const image::ManifestRoot base = image_with_noise(64 * kMiB, all);
  const PrivateRam ram = mapped(base);
  fill_with_noise(ram.bytes(), 3);
  FrozenProcess process;
  const ProcessMemory memory = process.memory(ram.data(), ram.size()).value();
  const size_t packs = pack_files();
  const Result<image::ManifestRoot> done = try_commit(memory, base, [&](const Progress& p) {
    if (p.done_bytes == 4 * kMiB) process.kill();
  });
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind(), ErrorKind::kUnavailable) << done.error().to_string();
  EXPECT_EQ(pack_files(), packs);
}

TEST_F(MemoryFaultTest, AddressesWhereNothingIsAreUnchangedAndImpossibleOnesAreErrors) {
  const image::ManifestRoot base = image_with_noise(8 * kMiB, all);
  const PrivateRam ram = mapped(base);
  fill_with_noise(ram.page(1), 3);
  const Pipe pipe = make_pipe().value();
  const FrozenProcess process([&] {
    ::munmap(ram.data() + kBlock, ram.size() - kBlock);
    static_cast<void>(write_all(pipe.write_end.get(), std::array{std::byte{1}}));
  });
  std::array<std::byte, 1> done;
  ASSERT_TRUE(read_exact(pipe.read_end.get(), done));
  const ProcessMemory memory = process.memory(ram.data(), ram.size()).value();
  committed(memory, base);
  EXPECT_EQ(report_.own_pages, 1u);
  std::vector<std::byte> page(kPage);
  EXPECT_EQ(memory.read(kBlock, page).error().kind(), ErrorKind::kIo);
  EXPECT_EQ(memory.read(ram.size(), page).error().kind(), ErrorKind::kInvalid);

  const auto kind_at = [&](uint64_t address, uint64_t bytes) {
    const Result<ProcessMemory> at = process.memory(reinterpret_cast<const void*>(address), bytes);
    return at ? try_commit(*at, no_image(8 * kMiB)).error().kind() : at.error().kind();
  };
  EXPECT_EQ(kind_at(123, 8 * kMiB), ErrorKind::kInvalid);
  EXPECT_EQ(kind_at(kPage, 100), ErrorKind::kInvalid);
  EXPECT_EQ(kind_at(~uint64_t{0} - 8 * kMiB + 1, 8 * kMiB), ErrorKind::kInvalid);
  EXPECT_EQ(kind_at((1ull << 56) - 8 * kMiB, 8 * kMiB), ErrorKind::kUnavailable);
}

// Drops and writes its memory all the time: what is read is anything, and nothing but errors comes of it.
TEST_F(MemoryFaultTest, AProcessThatChangesItsMappingsWhileItIsReadHarmsItselfAlone) {
  const image::ManifestRoot base = image_with_noise(16 * kMiB, every_other);
  const PrivateRam ram = mapped(base);
  fill_with_noise(ram.bytes(), 9);
  const FrozenProcess process([&] {
    for (std::mt19937_64 random(1);; random()) {
      std::byte* const at = ram.data() + random() % (ram.size() / kPage - 64) * kPage;
      ::munmap(at, 64 * kPage);
      if (random() % 4 == 0) continue;
      // Safety: the range was just unmapped, inside of the test's region.
      ::mmap(at, 64 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      std::fill_n(at, kPage, std::byte{1});
    }
  });
  const ProcessMemory memory = process.memory(ram.data(), ram.size()).value();
  int good = 0, bad = 0;
  for (int round = 0; round < 60; round++) {
    const Result<image::ManifestRoot> done = try_commit(memory, base);
    if (!done) {
      EXPECT_EQ(done.error().kind(), ErrorKind::kIo) << done.error().to_string();
    }
    done ? good++ : bad++;
    if (done) filled(*done);
  }
  std::printf("%d commits, %d errors\n", good, bad);
  EXPECT_GT(bad, 0);
}

// Of all faults in the range whoever has the descriptor hears, and they wait until it answers. This one never does.
bool answers_no_fault_in(std::span<std::byte> range) {
  const int faults = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC));
  if (faults < 0) return false;
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  uffdio_register all{
      .range = {reinterpret_cast<uintptr_t>(range.data()), range.size()}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
  return ::ioctl(faults, UFFDIO_API, &api) == 0 && ::ioctl(faults, UFFDIO_REGISTER, &all) == 0;
}

// It may drop a page between the look at its page map and the read.
TEST_F(MemoryFaultTest, APageThatTheProcessWouldHaveToDeliverIsAnErrorAtOnce) {
  Captured nothing(8 * kMiB);
  for (uint64_t block = 0; block < nothing.zeros.blocks(); block++) nothing.zeros.set_zero(block, true);
  const PrivateRam ram(nothing.zeros, nothing.even.get(), nothing.odd.get());
  const Pipe pipe = make_pipe().value();
  const FrozenProcess process([&] {
    static_cast<void>(write_all(pipe.write_end.get(), std::array{std::byte{answers_no_fault_in(ram.bytes())}}));
    for (;;) ::pause();
  });
  std::array<std::byte, 1> there;
  ASSERT_TRUE(read_exact(pipe.read_end.get(), there));
  if (there[0] != std::byte{1}) GTEST_SKIP() << "no userfaultfd for faults of the kernel on this machine";
  const ProcessMemory memory = process.memory(ram.data(), ram.size()).value();
  std::vector<std::byte> page(kPage);
  EXPECT_EQ(memory.read(0, page).error().kind(), ErrorKind::kIo);
  committed(memory, no_image(8 * kMiB));
  EXPECT_EQ(report_.own_pages, 0u);
}

TEST_F(MemoryFaultTest, FilesThatAreShorterThanTheMapSaysAreAnError) {
  Captured files(8 * kMiB);
  ASSERT_EQ(::ftruncate(files.even.get(), 5 * kMiB), 0);
  EXPECT_EQ(try_commit(files.view(), no_image(8 * kMiB)).error().kind(), ErrorKind::kCorrupt);
}

// ---- Whoever commits is killed, or has no room.

TEST_F(MemoryFaultTest, ACommitThatIsKilledLeavesNothingAndCanBeDoneAgain) {
  const image::ManifestRoot base = image_with_noise(160 * kMiB, every_other);
  const PrivateRam ram = mapped(base);
  for (uint64_t page = 0; page < ram.pages(); page += 2) fill_with_noise(ram.page(page), page + 500);
  const FrozenProcess process;
  const size_t packs = pack_files();
  for (const uint64_t after : {0 * kMiB, 80 * kMiB, 150 * kMiB}) {  // the first pack is full after 64 MiB of noise
    store_.reset();
    const pid_t committer = ::fork();
    if (committer == 0) {
      reopen();
      const ProcessMemory memory = process.memory(ram.data(), ram.size()).value();
      static_cast<void>(try_commit(memory, base, [&](const Progress& p) {
        if (p.done_bytes >= after) ::kill(::getpid(), SIGKILL);
      }));
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(committer, &status, 0), committer);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    reopen();
    EXPECT_EQ(pack_files(), packs) << after;
  }
  expect_same(ram, committed(process.memory(ram.data(), ram.size()).value(), base));
}

TEST_F(MemoryFaultTest, AFullDiskIsAnErrorAndTheImageBelowStays) {
  ramet::testing::on_a_small_disk(directory_.path + "/small", 24 * kMiB, [this](ramet::testing::SmallDisk& disk) {
    directory_.path = disk.path();
    std::filesystem::create_directory(packs_path());
    reopen();
    const image::ManifestRoot base = image_with_noise(4 * kMiB, all);
    const PrivateRam before = mapped(base), ram = mapped(base);
    for (const uint64_t page : scattered(ram.pages(), 200, 1)) fill_with_noise(ram.page(page), page + 100);
    const FrozenProcess process;
    const ProcessMemory memory = process.memory(ram.data(), ram.size()).value();
    const std::set<std::string> files = disk.files();
    ramet::testing::fail_at_every_write(
        disk,
        [&]() -> Status {
          TRY(try_commit(memory, base));
          return {};
        },
        [&] {
          EXPECT_EQ(disk.files(), files);
          expect_same(before, base);
        },
        16384);
    expect_same(ram, committed(memory, base));
    store_.reset();
  });
}

}  // namespace
}  // namespace ramet::commit
