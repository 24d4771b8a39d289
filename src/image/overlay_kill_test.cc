// A process that writes an overlay is killed at any moment; the host lives. What it had flushed is there, block by block, and
// everything else is a content the block had since. Freezes and new overlays happen on the way.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <filesystem>
#include <random>

#include "base/file.h"
#include "image/testing/patterns.h"

namespace ramet::image {
namespace {

using testing::read_version;
using testing::write_version;

constexpr uint64_t kBlocks = kChunkBlocks;
constexpr uint64_t kHot = 64;
constexpr int kKills = 40;

// What the writer tells its murderer, in memory that outlives it. Versions of a block grow; 0 = zeroed.
struct Ledger {
  volatile uint64_t begun[kHot];    // the newest version that was begun
  volatile uint64_t oldest[kHot];   // the oldest version that may be found, after a completed flush
  volatile bool may_be_zero[kHot];  // zeroed at the last completed flush, or a zero was begun since
  // Content `now` is certain.
  void settle(uint64_t b, uint64_t now) {
    oldest[b] = now ? now : begun[b] + 1;
    may_be_zero[b] = now == 0;
  }
  volatile uint64_t overlays;  // files made so far
};

struct Folder {
  Folder() {
    char path[] = "/tmp/ramet-kill-XXXXXX";
    path_ = ::mkdtemp(path);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  OverlayFiles overlay(uint64_t n, bool writable) const {
    const auto open = [&](const char* suffix, int flags) {
      return open_file(path_ + "/" + std::to_string(n) + suffix, flags, 0600).value();
    };
    UniqueFd data_rw, log_rw;
    if (writable) {
      data_rw = open(".data", O_RDWR | O_CREAT);
      log_rw = open(".log", O_RDWR | O_CREAT);
    }
    return overlay_from_descriptors(std::to_string(n), std::move(data_rw), open(".data", O_RDONLY), std::move(log_rw),
                                    open(".log", O_RDONLY));
  }
  std::unique_ptr<OverlayStack> stack(uint64_t overlays) const {
    std::vector<OverlayFiles> frozen;
    for (uint64_t i = 0; i + 1 < overlays; i++) frozen.push_back(overlay(i, false));
    return OverlayStack::open(nullptr, kBlocks, std::move(frozen), overlay(overlays - 1, true), HostHistory::kSameBoot).value();
  }
  std::string path_;
};

[[noreturn]] void write_until_killed(const Folder& folder, Ledger& ledger, uint64_t round, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::unique_ptr<OverlayStack> stack = folder.stack(ledger.overlays);
  uint64_t now[kHot];
  for (uint64_t b = 0; b < kHot; b++) now[b] = *read_version(*stack, b * 3);
  for (uint64_t step = 1;; step++) {
    const uint64_t b = rng() % kHot;
    const uint64_t dice = rng() % 20;
    if (dice < 14) {
      now[b] = round << 40 | step << 8 | b;
      ledger.begun[b] = now[b];
      if (!write_version(*stack, {b * 3, 1}, now[b])) ::_exit(2);
    } else if (dice < 16) {
      ledger.may_be_zero[b] = true;
      if (!stack->zero({b * 3, 1})) ::_exit(3);
      now[b] = 0;
    } else if (dice < 19) {
      if (!stack->flush()) ::_exit(4);
      for (uint64_t i = 0; i < kHot; i++) ledger.settle(i, now[i]);
    } else if (stack->freeze().value()) {
      if (!stack->start_writable(folder.overlay(ledger.overlays, true))) ::_exit(5);
      ledger.overlays = ledger.overlays + 1;
    }
  }
}

TEST(OverlayKill, WhatWasFlushedSurvivesSigkill) {
  const Folder folder;
  Ledger& ledger =
      *static_cast<Ledger*>(::mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ledger.overlays = 1;
  for (uint64_t b = 0; b < kHot; b++) ledger.settle(b, 0);
  std::mt19937_64 rng(11);
  for (uint64_t round = 1; round <= kKills; round++) {
    const pid_t child = ::fork();
    if (child == 0) write_until_killed(folder, ledger, round, round);
    ::usleep(static_cast<useconds_t>(1000 + rng() % 40000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed with " << WEXITSTATUS(status);
    // A freeze may have happened before its overlay was counted: the chain is then one shorter, as the daemon would see it.
    const std::unique_ptr<OverlayStack> stack = folder.stack(ledger.overlays);
    for (uint64_t b = 0; b < kHot; b++) {
      const std::optional<uint64_t> found = read_version(*stack, b * 3);
      ASSERT_TRUE(found) << "round " << round << ": block " << b << " is torn";
      if (*found == 0) {
        ASSERT_TRUE(ledger.may_be_zero[b]) << "round " << round << ": block " << b << " lost version " << ledger.oldest[b];
        continue;
      }
      ASSERT_EQ(*found & 0xff, b);
      ASSERT_GE(*found, ledger.oldest[b]) << "round " << round << ": block " << b;
      ASSERT_LE(*found, ledger.begun[b]);
    }
    for (uint64_t b = 0; b < kHot; b++) ledger.settle(b, *read_version(*stack, b * 3));
  }
  ::munmap(&ledger, sizeof(Ledger));
}

}  // namespace
}  // namespace ramet::image
