// Random histories of a disk against a model in memory: writes, zeroes, flushes, freezes, branches, new processes, and power
// failures of the host. What was flushed is never lost; every other block has a content it had since the last flush.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "image/merge.h"
#include "image/testing/patterns.h"

namespace ramet::image {
namespace {

using testing::CrashOverlay;
using testing::frozen_files;
using testing::PatternBase;
using testing::read_version;
using testing::writable_files;
using testing::write_version;

constexpr uint64_t kBlocks = kChunkBlocks + 64;
constexpr uint64_t kHotBlocks = 48;  // few, around a chunk border, so that layers interact

uint64_t hot(uint64_t i) { return kChunkBlocks - kHotBlocks / 2 + i; }

// One branch of the history: the stack, its chain of overlays and what its guest knows.
class Branch {
 public:
  explicit Branch(std::shared_ptr<CrashOverlay> top) : top_(std::move(top)) {
    for (uint64_t i = 0; i < kHotBlocks; i++) {
      now_[hot(i)] = PatternBase::version_of(hot(i));
      allowed_[hot(i)] = {now_[hot(i)]};
    }
    reopen(HostHistory::kSameBoot);
  }

  void write(BlockRange range, uint64_t version) {
    ASSERT_TRUE(write_version(*stack_, range, version));
    note(range, version);
  }
  void zero(BlockRange range) {
    ASSERT_TRUE(stack_->zero(range));
    note(range, 0);
  }
  void flush() {
    ASSERT_TRUE(stack_->flush());
    for (auto& [block, versions] : allowed_) versions = {now_[block]};
  }
  void freeze(std::shared_ptr<CrashOverlay> next) {
    const Result<bool> frozen = stack_->freeze();
    ASSERT_TRUE(frozen);
    if (!*frozen) return;
    chain_.push_back(top_);
    top_ = std::move(next);
    ASSERT_TRUE(stack_->start_writable(writable_files(*top_)));
  }
  // A child at this instant: this branch freezes first. Its disk is what its parent's guest saw.
  Branch fork(std::shared_ptr<CrashOverlay> next, std::shared_ptr<CrashOverlay> childs) {
    freeze(std::move(next));
    Branch child(*this, std::move(childs));
    return child;
  }
  void upkeep() { ASSERT_TRUE(stack_->upkeep_to(1)); }
  void merge(std::shared_ptr<CrashOverlay> merged) {
    if (chain_.size() < 2) return;
    std::vector<OverlayFiles> frozen;
    for (const auto& o : chain_) frozen.push_back(frozen_files(*o));
    OverlayFiles out = writable_files(*merged);
    ASSERT_TRUE(merge_overlays(std::move(frozen), kBlocks, out));
    // The daemon may swap it in while the machine runs, or only for the next process.
    if (chain_.size() == stack_->frozen_count()) {
      const Status replaced = stack_->replace_frozen(0, chain_.size(), frozen_files(*merged));
      ASSERT_TRUE(replaced) << replaced.error().to_string();
      chain_ = {merged};
    }
  }
  // The process ended; the host lives.
  void restart() {
    // Unflushed presence is forgotten, content in place is not.
    reopen(HostHistory::kSameBoot);
    accept();
  }
  // The host lost power and recovered.
  void after_power_failure() {
    reopen(HostHistory::kSameBoot);
    accept();
    reopen(HostHistory::kCrashed);  // no doubt is left
    check();
  }
  void check() {
    for (const auto& [block, version] : now_) ASSERT_EQ(read_version(*stack_, block), version) << "block " << block;
  }
  std::set<std::shared_ptr<CrashOverlay>> overlays() const {
    std::set<std::shared_ptr<CrashOverlay>> out(chain_.begin(), chain_.end());
    out.insert(top_);
    return out;
  }

 private:
  Branch(const Branch& parent, std::shared_ptr<CrashOverlay> top)
      : chain_(parent.chain_), top_(std::move(top)), now_(parent.now_), allowed_(parent.allowed_) {
    reopen(HostHistory::kSameBoot);
  }
  void note(BlockRange range, uint64_t version) {
    for (uint64_t b = range.first; b < range.end(); b++) {
      now_[b] = version;
      allowed_[b].insert(version);
    }
  }
  void reopen(HostHistory history) {
    std::vector<OverlayFiles> frozen;
    for (const auto& o : chain_) frozen.push_back(frozen_files(*o));
    auto stack =
        OverlayStack::open(std::make_unique<PatternBase>(kBlocks), kBlocks, std::move(frozen), writable_files(*top_), history);
    ASSERT_TRUE(stack) << stack.error().to_string();
    stack_ = std::move(*stack);
  }
  // What is there must be allowed, and is the truth from now on.
  void accept() {
    for (auto& [block, versions] : allowed_) {
      const std::optional<uint64_t> found = read_version(*stack_, block);
      ASSERT_TRUE(found) << "block " << block << " is torn";
      ASSERT_TRUE(versions.contains(*found)) << "block " << block << " has version " << *found << ", last " << now_[block];
      now_[block] = *found;
      // Unflushed but present content may still be lost by a later power failure.
      versions.insert(*found);
    }
  }

  std::vector<std::shared_ptr<CrashOverlay>> chain_;
  std::shared_ptr<CrashOverlay> top_;
  std::unique_ptr<OverlayStack> stack_;
  std::map<uint64_t, uint64_t> now_;                // what the guest reads
  std::map<uint64_t, std::set<uint64_t>> allowed_;  // what may be there after a failure
};

class RandomHistory : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomHistory, LosesNothingThatWasFlushed) {
  std::mt19937_64 rng(GetParam());
  uint64_t version = 1, overlays = 0;
  const auto make = [&] { return std::make_shared<CrashOverlay>(CrashOverlay{std::to_string(overlays++)}); };
  std::vector<Branch> branches;
  branches.emplace_back(make());
  for (int step = 0; step < 600 && !::testing::Test::HasFatalFailure(); step++) {
    Branch& b = branches[rng() % branches.size()];
    BlockRange range{hot(rng() % kHotBlocks), 1 + rng() % 6};
    range.count = std::min(range.count, hot(kHotBlocks) - range.first);
    const uint64_t dice = rng() % 100;
    if (dice < 50)
      b.write(range, version++);
    else if (dice < 65)
      b.zero(range);
    else if (dice < 80)
      b.flush();
    else if (dice < 86)
      b.freeze(make());
    else if (dice < 88)
      b.merge(make());
    else if (dice < 89)
      b.upkeep();
    else if (dice < 92)
      b.restart();
    else if (dice < 96 && branches.size() < 5)
      branches.push_back(b.fork(make(), make()));
    else if (dice < 98)
      b.check();
    else {
      std::set<std::shared_ptr<CrashOverlay>> all;
      for (const Branch& each : branches) all.merge(each.overlays());
      for (const auto& o : all) {
        o->data->crash(rng);
        o->log->crash(rng);
      }
      std::vector<OverlayFiles> files;
      for (const auto& o : all) files.push_back(writable_files(*o));
      ASSERT_TRUE(recover_overlays(files, kBlocks));
      for (Branch& each : branches) each.after_power_failure();
    }
  }
  for (Branch& each : branches) each.check();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomHistory, ::testing::Range<uint64_t>(1, 161));

}  // namespace
}  // namespace ramet::image
