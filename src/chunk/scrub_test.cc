// A scrub comes by everything once a round, goes on where it was, and names what is damaged.
#include "chunk/scrub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chunk/testing/contents.h"
#include "chunk/testing/memory_storage.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk {
namespace {

using testing::blocks;

class ScrubTest : public ::testing::Test {
 protected:
  ScrubTest() {
    auto packs = std::make_unique<testing::MemoryStorage>();
    packs_ = packs.get();
    store_ = Store::open(std::move(packs), directory_.path + "/index.db", {}).value();
    for (uint64_t n = 0; n < kChunks; n++) {
      Batch batch = store_->begin();
      EXPECT_TRUE(batch.put(blocks(n * 100, 3)));
      EXPECT_TRUE(batch.commit());
    }
  }
  struct Round {
    size_t steps = 0;
    std::vector<Problem> problems;
  };
  // To the end of the round.
  static Round go_on(Scrub& scrub) {
    Round round;
    for (;; round.steps++) {
      Scrub::Step step = scrub.step().value();
      if (step.end_of_round) return round;
      std::ranges::move(step.problems, std::back_inserter(round.problems));
    }
  }

  static constexpr uint64_t kChunks = 5;
  testing::TemporaryDirectory directory_;
  testing::MemoryStorage* packs_;  // the store's
  std::unique_ptr<Store> store_;
};

TEST_F(ScrubTest, ComesByEverythingOnceARound) {
  Scrub scrub(*store_);
  for (int i = 0; i < 2; i++) {
    const Round round = go_on(scrub);
    EXPECT_EQ(round.steps, 2 * kChunks);
    EXPECT_TRUE(round.problems.empty());
  }
}

TEST_F(ScrubTest, GoesOnWhereItWas) {
  for (size_t done = 0; done <= 2 * kChunks; done++) {
    Scrub before(*store_);
    for (size_t i = 0; i < done; i++) ASSERT_FALSE(before.step()->end_of_round);
    Scrub after(*store_, before.position());
    EXPECT_EQ(go_on(after).steps, 2 * kChunks - done);
  }
}

TEST_F(ScrubTest, NamesWhatIsDamaged) {
  packs_->packs.begin()->second[kPackHeaderBytes + 100] ^= std::byte{1};
  packs_->packs.erase(std::prev(packs_->packs.end()));
  Scrub scrub(*store_);
  const Round round = go_on(scrub);
  EXPECT_EQ(round.problems.size(), 4u);  // each of them, and its chunk
  EXPECT_THAT(round.problems[0].where, ::testing::HasSubstr("pack"));
}

TEST_F(ScrubTest, WhatIsTakenAwayMeanwhileIsNoProblem) {
  Scrub scrub(*store_);
  ASSERT_TRUE(scrub.step());
  ASSERT_TRUE(store_->collect([]() -> Result<Store::LiveSet> { return Store::LiveSet{}; }));
  EXPECT_TRUE(go_on(scrub).problems.empty());
}

TEST_F(ScrubTest, APackIsReadOnce) {
  const size_t before = packs_->reads;
  Scrub scrub(*store_);
  ASSERT_TRUE(scrub.step());
  EXPECT_EQ(packs_->reads - before, 1u);
}

}  // namespace
}  // namespace ramet::chunk
