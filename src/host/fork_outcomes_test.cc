// Outcomes that the registry does not take: kept, in the way of what would build on them, and noted later.
#include "host/fork_outcomes.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/small_disk.h"

namespace ramet::host {
namespace {

using Ids = std::vector<std::string>;
using ramet::testing::on_a_small_disk;
using ramet::testing::SmallDisk;

MachineRow row(const std::string& id) {
  MachineRow r;
  r.info.id = id;
  r.info.family_id = "a";
  r.info.template_name = "base";
  return r;
}

class ForkOutcomesTest : public ::testing::Test {
 protected:
  ForkOutcomesTest() {
    char path[] = "/tmp/ramet-outcomes-XXXXXX";
    directory_ = ::mkdtemp(path);
  }
  ~ForkOutcomesTest() override { std::filesystem::remove_all(directory_); }
  void open(const std::string& directory) {
    database_ = directory + "/ramet.db";
    registry_ = Registry::open(database_).value();
    outcomes_ = std::make_unique<ForkOutcomes>(*registry_, [this] { made_room_++; });
    ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  }
  // From outside: the end of an operation is refused.
  void refuse_ends() {
    SqlDatabase db = SqlDatabase::open(database_).value();
    ASSERT_TRUE(db.exec("CREATE TRIGGER no BEFORE DELETE ON operations BEGIN SELECT RAISE(ABORT,'test'); END"));
  }
  void allow_ends() {
    SqlDatabase db = SqlDatabase::open(database_).value();
    ASSERT_TRUE(db.exec("DROP TRIGGER no"));
  }
  ForkIntent begin(const std::string& id) {
    ForkIntent fork{id, "a", id + "-next", {row(id + "-child")}, {id + "-own"}};
    EXPECT_TRUE(registry_->begin_fork(fork));
    return fork;
  }

  std::string directory_, database_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<ForkOutcomes> outcomes_;
  int made_room_ = 0;
};

TEST_F(ForkOutcomesTest, WhatCannotBeNotedIsKeptAndNotedLater) {
  open(directory_);
  const ForkIntent fork = begin("one");
  refuse_ends();
  EXPECT_FALSE(outcomes_->note(fork, true));
  EXPECT_FALSE(outcomes_->note(fork, true)) << "as when the fork is given up";
  EXPECT_EQ(outcomes_->kept(), 1u);
  EXPECT_EQ(*registry_->chain("a"), (Ids{"a-own"}));
  ASSERT_TRUE(registry_->delete_machine("one-child"));
  EXPECT_EQ(*registry_->doom_unused(), (Ids{"one-own"})) << "the machine writes on one-next";
  EXPECT_EQ(outcomes_->try_again(), 0u);
  allow_ends();
  EXPECT_EQ(outcomes_->try_again(), 1u);
  EXPECT_EQ(outcomes_->kept(), 0u);
  EXPECT_EQ(*registry_->chain("a"), (Ids{"a-own", "one-next"}));
  EXPECT_EQ(*registry_->unsealed(), (Ids{"a-own"}));
  EXPECT_TRUE(registry_->pending_forks()->empty());
}

TEST_F(ForkOutcomesTest, NothingIsBuiltOnAChainThatIsNotKnown) {
  open(directory_);
  ASSERT_TRUE(registry_->add_machine(row("b"), {}, "b-own"));
  const ForkIntent fork = begin("one");
  refuse_ends();
  EXPECT_FALSE(outcomes_->note(fork, true));
  EXPECT_FALSE(outcomes_->note_all_of("a"));
  EXPECT_TRUE(outcomes_->note_all_of("b"));
  allow_ends();
  EXPECT_TRUE(outcomes_->note_all_of("a"));
  EXPECT_TRUE(outcomes_->note(begin("two"), true));
  EXPECT_EQ(*registry_->chain("a"), (Ids{"a-own", "one-next", "two-next"}));
}

TEST_F(ForkOutcomesTest, TheOverlayOfAMachineThatEndedMeanwhileGoes) {
  open(directory_);
  const ForkIntent fork = begin("one");
  refuse_ends();
  EXPECT_FALSE(outcomes_->note(fork, true));
  ASSERT_TRUE(registry_->release_machine("a"));
  ASSERT_TRUE(registry_->delete_machine("one-child"));
  EXPECT_EQ(*registry_->doom_unused(), (Ids{"a-own", "one-own"}));
  allow_ends();
  EXPECT_EQ(outcomes_->try_again(), 1u);
  EXPECT_EQ(*registry_->doom_unused(), (Ids{"a-own", "one-next", "one-own"}));
}

TEST_F(ForkOutcomesTest, OnAFullDiskRoomIsMade) {
  on_a_small_disk(directory_ + "/disk", 4u << 20, [this](SmallDisk& disk) {
    open(disk.path());
    for (int i = 0;; i++) {  // until the space that was set aside is used up
      const ForkIntent fork = begin(std::to_string(i));
      disk.fill();
      const Status noted = outcomes_->note(fork, true);
      disk.free();
      if (noted) continue;
      EXPECT_EQ(noted.error().kind(), ErrorKind::kNoSpace);
      break;
    }
    EXPECT_EQ(made_room_, 1);
    EXPECT_EQ(outcomes_->try_again(), 1u);
    EXPECT_TRUE(registry_->pending_forks()->empty());
  });
}

}  // namespace
}  // namespace ramet::host
