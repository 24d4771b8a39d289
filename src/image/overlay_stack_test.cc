#include "image/overlay_stack.h"

#include <gtest/gtest.h>

#include <thread>

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

constexpr uint64_t kBlocks = 2 * kChunkBlocks + 10;

std::unique_ptr<OverlayStack> open(std::vector<const CrashOverlay*> frozen, const CrashOverlay* writable,
                                   HostHistory history = HostHistory::kSameBoot) {
  std::vector<OverlayFiles> lower;
  for (const CrashOverlay* o : frozen) lower.push_back(frozen_files(*o));
  std::optional<OverlayFiles> top;
  if (writable) top = writable_files(*writable);
  auto stack = OverlayStack::open(std::make_unique<PatternBase>(kBlocks), kBlocks, std::move(lower), std::move(top), history);
  EXPECT_TRUE(stack) << stack.error().to_string();
  return std::move(*stack);
}

TEST(OverlayStack, ReadsTheBaseUntilWritten) {
  CrashOverlay a{"a"};
  auto stack = open({}, &a);
  EXPECT_EQ(read_version(*stack, 4), PatternBase::version_of(4));
  ASSERT_TRUE(write_version(*stack, {4, 2}, 9));
  EXPECT_EQ(read_version(*stack, 4), 9u);
  EXPECT_EQ(read_version(*stack, 5), 9u);
  EXPECT_EQ(read_version(*stack, 7), PatternBase::version_of(7));
  EXPECT_EQ(stack->writable_data_blocks(), 2u);
}

TEST(OverlayStack, OneReadCrossesAllKindsOfLayers) {
  CrashOverlay a{"a"}, b{"b"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {10, 1}, 1));
  ASSERT_TRUE(stack->freeze().value());
  ASSERT_TRUE(stack->start_writable(writable_files(b)));
  ASSERT_TRUE(write_version(*stack, {11, 1}, 2));
  ASSERT_TRUE(stack->zero({13, 1}));
  std::vector<uint64_t> words(5 * 512);
  // Buffers that cut blocks in the middle.
  const iovec v[] = {{words.data(), 100},
                     {reinterpret_cast<char*>(words.data()) + 100, 4096 * 3},
                     {reinterpret_cast<char*>(words.data()) + 100 + 4096 * 3, 4096 * 2 - 100}};
  ASSERT_TRUE(stack->read({10, 5}, v, Wait::kAllowed).value());
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[512], 2u);
  EXPECT_EQ(words[1024], PatternBase::version_of(12));
  EXPECT_EQ(words[1536], 0u);
  EXPECT_EQ(words[2048], PatternBase::version_of(14));
  EXPECT_EQ(words[2559], PatternBase::version_of(14));
}

TEST(OverlayStack, AFrozenOverlayHasNoWriterAndKeepsItsBlocks) {
  CrashOverlay a{"a"}, parent{"p"}, child{"c"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {1, 1}, 5));
  ASSERT_TRUE(stack->freeze().value());
  EXPECT_EQ(write_version(*stack, {1, 1}, 6).error().kind(), ErrorKind::kPermission);
  auto branch = open({&a}, &child);  // what the child process inherits
  ASSERT_TRUE(stack->start_writable(writable_files(parent)));
  ASSERT_TRUE(write_version(*stack, {1, 1}, 7));
  ASSERT_TRUE(write_version(*branch, {1, 1}, 8));
  EXPECT_EQ(read_version(*stack, 1), 7u);
  EXPECT_EQ(read_version(*branch, 1), 8u);
  EXPECT_EQ(read_version(*open({&a}, nullptr), 1), 5u);
}

TEST(OverlayStack, AnEmptyOverlayIsNotFrozen) {
  CrashOverlay a{"a"}, b{"b"};
  auto stack = open({}, &a);
  EXPECT_FALSE(stack->freeze().value());
  ASSERT_TRUE(write_version(*stack, {1, 1}, 5));
  EXPECT_TRUE(stack->freeze().value());
  EXPECT_FALSE(stack->freeze().value());
  ASSERT_TRUE(stack->start_writable(writable_files(b)));
  EXPECT_FALSE(stack->freeze().value());
  EXPECT_EQ(stack->frozen_count(), 1u);
}

TEST(OverlayStack, AWritableOverlayGoesOnAfterTheProcess) {
  CrashOverlay a{"a"};
  {
    auto stack = open({}, &a);
    ASSERT_TRUE(write_version(*stack, {1, 3}, 5));
    ASSERT_TRUE(stack->zero({2, 1}));
    ASSERT_TRUE(stack->flush());
    ASSERT_TRUE(write_version(*stack, {8, 1}, 6));  // never flushed: gone
  }
  auto stack = open({}, &a);
  EXPECT_EQ(read_version(*stack, 1), 5u);
  EXPECT_EQ(read_version(*stack, 2), 0u);
  EXPECT_EQ(read_version(*stack, 8), PatternBase::version_of(8));
  ASSERT_TRUE(write_version(*stack, {2, 1}, 7));
  ASSERT_TRUE(stack->flush());
  EXPECT_EQ(read_version(*open({}, &a), 2), 7u);
}

TEST(OverlayStack, ZeroGivesSpaceBackOnlyAfterTheRecordIsDurable) {
  CrashOverlay a{"a"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {1, 1}, 5));
  ASSERT_TRUE(stack->flush());
  ASSERT_TRUE(stack->zero({1, 1}));
  EXPECT_EQ(static_cast<int>(a.data->at(kBlockBytes)), 5);  // still there
  EXPECT_EQ(read_version(*stack, 1), 0u);
  ASSERT_TRUE(stack->flush());
  EXPECT_EQ(static_cast<int>(a.data->at(kBlockBytes)), 0);
  EXPECT_EQ(stack->writable_data_blocks(), 0u);
}

TEST(OverlayStack, ABlockWrittenAgainIsNotPunched) {
  CrashOverlay a{"a"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {1, 3}, 5));
  ASSERT_TRUE(stack->flush());
  ASSERT_TRUE(stack->zero({1, 3}));
  ASSERT_TRUE(write_version(*stack, {2, 1}, 6));
  ASSERT_TRUE(stack->flush());
  EXPECT_EQ(read_version(*stack, 1), 0u);
  EXPECT_EQ(read_version(*stack, 2), 6u);
  EXPECT_EQ(read_version(*stack, 3), 0u);
}

TEST(OverlayStack, OverwritesNeedNoLogRecord) {
  CrashOverlay a{"a"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {1, 1}, 5));
  ASSERT_TRUE(stack->flush());
  const uint64_t log_bytes = a.log->size();
  const unsigned log_syncs = a.log->syncs;
  ASSERT_TRUE(write_version(*stack, {1, 1}, 6));
  ASSERT_TRUE(stack->flush());
  EXPECT_EQ(a.log->size(), log_bytes);
  EXPECT_EQ(a.log->syncs, log_syncs);
}

TEST(OverlayStack, TheFirstFlushAfterAFreezeSyncsTheFrozenOverlayOnce) {
  CrashOverlay a{"a"}, b{"b"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {1, 1}, 5));
  ASSERT_TRUE(stack->freeze().value());
  ASSERT_TRUE(stack->start_writable(writable_files(b)));
  EXPECT_EQ(a.data->syncs, 0u);
  ASSERT_TRUE(stack->flush());
  EXPECT_EQ(a.data->syncs, 1u);
  EXPECT_EQ(a.log->syncs, 1u);
  ASSERT_TRUE(stack->flush());
  EXPECT_EQ(a.data->syncs, 1u);
}

TEST(OverlayStack, UnsyncedRecordsOfAFreezeAreIgnoredAfterAHostCrash) {
  CrashOverlay a{"a"}, b{"b"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {1, 1}, 5));
  ASSERT_TRUE(stack->flush());
  ASSERT_TRUE(stack->zero({1, 1}));
  ASSERT_TRUE(write_version(*stack, {2, 1}, 6));
  ASSERT_TRUE(stack->freeze().value());
  EXPECT_EQ(read_version(*open({&a}, nullptr), 2), 6u);
  auto after = open({&a}, nullptr, HostHistory::kCrashed);
  EXPECT_EQ(read_version(*after, 1), 5u);
  EXPECT_EQ(read_version(*after, 2), PatternBase::version_of(2));
}

TEST(OverlayStack, AFlushOfALaterOverlayMakesTheFreezeBelievable) {
  CrashOverlay a{"a"}, b{"b"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {2, 1}, 6));
  ASSERT_TRUE(stack->freeze().value());
  ASSERT_TRUE(stack->start_writable(writable_files(b)));
  ASSERT_TRUE(stack->flush());
  EXPECT_EQ(read_version(*open({&a}, &b, HostHistory::kCrashed), 2), 6u);
}

TEST(OverlayStack, ASealMakesTheFreezeBelievable) {
  CrashOverlay a{"a"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {2, 1}, 6));
  ASSERT_TRUE(stack->freeze().value());
  OverlayFiles files = writable_files(a);
  ASSERT_TRUE(seal_overlay(files, kBlocks));
  EXPECT_EQ(read_version(*open({&a}, nullptr, HostHistory::kCrashed), 2), 6u);
}

TEST(OverlayStack, AnOverlayThatIsTakenUpAgainAfterAFreezeIsBelievedAfterItsFlush) {
  CrashOverlay a{"a"}, b{"b"};
  {
    auto stack = open({}, &a);
    ASSERT_TRUE(write_version(*stack, {1, 1}, 5));
    ASSERT_TRUE(stack->freeze().value());
  }
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {2, 1}, 6));
  EXPECT_EQ(read_version(*open({&a}, nullptr, HostHistory::kCrashed), 1), PatternBase::version_of(1));
  ASSERT_TRUE(stack->flush());
  EXPECT_EQ(read_version(*open({&a}, nullptr, HostHistory::kCrashed), 1), 5u);
  EXPECT_EQ(read_version(*open({&a}, nullptr, HostHistory::kCrashed), 2), 6u);
}

TEST(OverlayStack, AFullDiskIsAnErrorAndTheDiskGoesOn) {
  CrashOverlay a{"a"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {1, 1}, 5));
  a.data->writes_before_failure = 0;
  EXPECT_EQ(write_version(*stack, {2, 1}, 6).error().kind(), ErrorKind::kNoSpace);
  EXPECT_EQ(read_version(*stack, 2), PatternBase::version_of(2));
  a.data->writes_before_failure = -1;
  a.log->writes_before_failure = 0;
  EXPECT_FALSE(stack->flush());
  EXPECT_FALSE(stack->freeze());
  a.log->writes_before_failure = -1;
  ASSERT_TRUE(write_version(*stack, {2, 1}, 6));
  ASSERT_TRUE(stack->flush());
  auto again = open({}, &a);
  EXPECT_EQ(read_version(*again, 1), 5u);
  EXPECT_EQ(read_version(*again, 2), 6u);
}

TEST(OverlayStack, AfterAFailedSyncNoFlushSucceeds) {
  CrashOverlay a{"a"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {1, 1}, 5));
  a.data->fail_sync = true;
  EXPECT_FALSE(stack->flush());
  a.data->fail_sync = false;
  EXPECT_EQ(stack->flush().error().kind(), ErrorKind::kIo);
}

TEST(OverlayStack, RangesOffTheDiskAreErrors) {
  CrashOverlay a{"a"};
  auto stack = open({}, &a);
  EXPECT_EQ(write_version(*stack, {kBlocks, 1}, 1).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(stack->zero({1, ~0ull}).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(stack->read({kBlocks - 1, 2}, {}, Wait::kAllowed).error().kind(), ErrorKind::kInvalid);
}

TEST(OverlayStack, AFrozenOverlayThatIsFullyCoveredIsClosed) {
  std::vector<CrashOverlay> overlays(50);
  auto stack = open({}, &overlays[0]);
  for (size_t i = 1; i < overlays.size(); i++) {
    ASSERT_TRUE(write_version(*stack, {1, 1}, i));
    ASSERT_TRUE(stack->flush());
    ASSERT_TRUE(stack->freeze().value());
    ASSERT_TRUE(stack->start_writable(writable_files(overlays[i])));
  }
  EXPECT_EQ(stack->frozen_count(), 1u);
}

TEST(OverlayStack, AThousandFreezesStayBoundedByMerging) {
  std::vector<std::unique_ptr<CrashOverlay>> all;
  const auto make = [&] {
    return all.emplace_back(std::make_unique<CrashOverlay>(CrashOverlay{std::to_string(all.size())})).get();
  };
  std::vector<CrashOverlay*> chain;
  CrashOverlay* top = make();
  auto stack = open({}, top);
  size_t most = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    ASSERT_TRUE(write_version(*stack, {i * 8, 2}, i + 1));
    ASSERT_TRUE(stack->freeze().value());
    chain.push_back(top);
    ASSERT_TRUE(stack->start_writable(writable_files(*(top = make()))));
    most = std::max(most, stack->frozen_count());
    if (chain.size() <= 16) continue;
    std::vector<OverlayFiles> frozen;
    for (const CrashOverlay* o : chain) frozen.push_back(frozen_files(*o));
    CrashOverlay* merged = make();
    OverlayFiles out = writable_files(*merged);
    ASSERT_TRUE(merge_overlays(std::move(frozen), kBlocks, out));
    out.data->drop_writer();
    out.log->drop_writer();
    ASSERT_TRUE(stack->replace_frozen(0, chain.size(), std::move(out)));
    chain = {merged};
  }
  EXPECT_LE(most, 17u);
  for (uint64_t i = 0; i < 1000; i++) ASSERT_EQ(read_version(*stack, i * 8 + 1), i + 1);
  auto reopened = open({chain.begin(), chain.end()}, top);
  for (uint64_t i = 0; i < 1000; i++) ASSERT_EQ(read_version(*reopened, i * 8 + 1), i + 1);
}

TEST(OverlayStack, AThousandFreezesStayBoundedByUpkeepAlone) {
  std::vector<std::unique_ptr<CrashOverlay>> all;
  const auto make = [&] {
    return all.emplace_back(std::make_unique<CrashOverlay>(CrashOverlay{std::to_string(all.size())})).get();
  };
  auto stack = open({}, make());
  size_t most = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    ASSERT_TRUE(write_version(*stack, {i * 8, 2}, i + 1));
    ASSERT_TRUE(stack->freeze().value());
    ASSERT_TRUE(stack->start_writable(writable_files(*make())));
    if (stack->wants_upkeep()) {
      ASSERT_TRUE(stack->upkeep());
    }
    most = std::max(most, stack->frozen_count());
  }
  EXPECT_LE(most, OverlayStack::kLayersWanted + 2);
  for (uint64_t i = 0; i < 1000; i++) ASSERT_EQ(read_version(*stack, i * 8 + 1), i + 1);
  // The whole chain, as the daemon has it, says the same.
  ASSERT_TRUE(stack->flush());
}

TEST(OverlayStack, UpkeepLosesNoWriteThatComesMeanwhile) {
  constexpr uint64_t kLayers = 30, kPerLayer = 64;
  std::vector<CrashOverlay> overlays(kLayers + 1);
  auto stack = open({}, &overlays[0]);
  for (uint64_t i = 0; i < kLayers; i++) {
    ASSERT_TRUE(write_version(*stack, {i * kPerLayer, kPerLayer}, 1));
    ASSERT_TRUE(stack->freeze().value());
    ASSERT_TRUE(stack->start_writable(writable_files(overlays[i + 1])));
  }
  std::thread guest([&] {
    for (uint64_t block = 0; block < kLayers * kPerLayer; block += 2) {
      EXPECT_TRUE(write_version(*stack, {block, 1}, 2));
    }
  });
  EXPECT_TRUE(stack->upkeep_to(0));
  guest.join();
  for (uint64_t block = 0; block < kLayers * kPerLayer; block++) ASSERT_EQ(read_version(*stack, block), block % 2 ? 1u : 2u);
}

TEST(Merge, TheNewestWinsAndZerosCoverTheBase) {
  CrashOverlay a{"a"}, b{"b"}, merged{"m"};
  auto stack = open({}, &a);
  ASSERT_TRUE(write_version(*stack, {1, 4}, 5));
  ASSERT_TRUE(stack->freeze().value());
  ASSERT_TRUE(stack->start_writable(writable_files(b)));
  ASSERT_TRUE(write_version(*stack, {2, 1}, 6));
  ASSERT_TRUE(stack->zero({4, 1}));
  ASSERT_TRUE(write_version(*stack, {5, 1}, 0));
  ASSERT_TRUE(stack->freeze().value());
  std::vector<OverlayFiles> frozen;
  frozen.push_back(frozen_files(a));
  frozen.push_back(frozen_files(b));
  OverlayFiles out = writable_files(merged);
  const MergeReport report = merge_overlays(std::move(frozen), kBlocks, out).value();
  EXPECT_EQ(report.data_blocks, 3u);
  EXPECT_EQ(report.zero_blocks, 2u);
  auto view = open({&merged}, nullptr, HostHistory::kCrashed);
  const std::vector<uint64_t> expected{0, 5, 6, 5, 0, 0, 0, PatternBase::version_of(7)};
  for (uint64_t i = 0; i < expected.size(); i++) EXPECT_EQ(read_version(*view, i), expected[i]) << i;
}

}  // namespace
}  // namespace ramet::image
