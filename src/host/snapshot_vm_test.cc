// Snapshots, pause and resume over the real monitor, with tiny guests (no agent). The guest `blk` keeps one counter in RAM and
// in a flushed block of its disk, and refuses to go on when they differ: each answer of it says that both are of one instant.
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "commit/snapshot_catalogue.h"
#include "host/snapshot_details.h"
#include "host/testing/host_test.h"

namespace ramet::host {
namespace {

using testing::monitors_of;
using testing::names_in;
using testing::tiny_options;

class SnapshotVmTest : public testing::HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    if (IsSkipped()) return;
    const Status uploaded = testing::upload_tiny(*host_, "tiny", "blk", std::string(1 << 20, '\0'));
    ASSERT_TRUE(uploaded) << uploaded.error().to_string();
  }
  Result<SandboxInfo> create_from(const std::string& snapshot) {
    CreateOptions o;
    o.snapshot = snapshot;
    return host_->create(o);
  }
  SandboxInfo started(const std::string& snapshot) {
    Result<SandboxInfo> s = create_from(snapshot);
    EXPECT_TRUE(s) << (s ? "" : s.error().to_string());
    return s ? *s : SandboxInfo{};
  }
  void pause(const std::string& id) {
    const Result<SandboxInfo> paused = host_->pause(id);
    ASSERT_TRUE(paused) << paused.error().to_string();
    EXPECT_EQ(paused->state, SandboxState::kPaused);
  }
  void resume(const std::string& id) {
    const Result<SandboxInfo> resumed = host_->resume(id);
    ASSERT_TRUE(resumed) << resumed.error().to_string();
    EXPECT_EQ(resumed->state, SandboxState::kRunning);
  }
  commit::SnapshotCatalogue catalogue() { return commit::SnapshotCatalogue::open(root_ + "/state/store/snapshots").value(); }
  // Of what is in the store: machines of templates after their boot, or all else.
  std::set<std::string> ids(bool captured) {
    std::set<std::string> out;
    const commit::SnapshotCatalogue all = catalogue();
    const std::vector<std::string> there = all.ids().value();
    for (const std::string& id : there) {
      const Result<commit::SnapshotRecord> record = all.get(id);
      if (record && decode_details(record->details).value().captured == captured) out.insert(id);
    }
    return out;
  }
  std::set<std::string> records() { return ids(false); }
  std::set<std::string> captured() { return ids(true); }
  // What the template's zygote came from: boot or store.
  std::string origin() { return host_->templates().at(0).started_from; }
  void restart() {
    host_.reset();
    open();
  }
};

TEST_F(SnapshotVmTest, CopiesStartWhereTheSandboxWasAndItGoesOn) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);
  EXPECT_EQ(count(a.id), 2u);
  const SnapshotResult taken = snapshot(a.id, "warm");
  EXPECT_GT(taken.timing.vcpu_stop_ms, 0);
  EXPECT_EQ(taken.info.sandbox_id, a.id);
  EXPECT_EQ(taken.info.memory_mib, 64u);
  EXPECT_EQ(count(a.id), 3u);
  const SandboxInfo b = started("warm"), c = started(taken.info.id);
  EXPECT_FALSE(b.parent_id);
  EXPECT_EQ(count(b.id), 3u);
  EXPECT_EQ(count(b.id), 4u);
  EXPECT_EQ(count(c.id), 3u);
  EXPECT_EQ(count(a.id), 4u);
}

TEST_F(SnapshotVmTest, WhatStandsOnASnapshotStoresOnlyWhatItChanged) {
  const SandboxInfo a = create();
  const SnapshotResult first = snapshot(a.id);
  const SandboxInfo b = started(first.info.id);
  EXPECT_EQ(count(b.id), 1u);
  const SnapshotResult second = snapshot(b.id);
  EXPECT_GT(second.changed_pages, 0u);
  EXPECT_LT(second.changed_pages, 64u);
  EXPECT_LE(second.memory_chunks, second.changed_pages);
  const SandboxInfo c = started(second.info.id);
  EXPECT_EQ(count(c.id), 2u);
}

TEST_F(SnapshotVmTest, OfFreshSandboxesStoresOnlyWhatTheyChangedOfTheirTemplate) {
  const SandboxInfo a = create(), b = create();
  for (const SandboxInfo& one : {a, b}) {
    const SnapshotResult taken = snapshot(one.id);
    EXPECT_LT(taken.changed_pages, 64u);
    EXPECT_EQ(count(started(taken.info.id).id), 1u);
  }
  EXPECT_EQ(host_->snapshots()->size(), 2u) << "the template's machine is nobody's snapshot";
}

TEST_F(SnapshotVmTest, OfASandboxWhoseTemplateIsNotAtHandAnyMoreStoresAll) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);  // by a new daemon, whose zygote is another machine
  const SnapshotResult taken = snapshot(a.id);
  EXPECT_EQ(count(started(taken.info.id).id), 2u);
}

TEST_F(SnapshotVmTest, AreListedFoundByNameAndRemoved) {
  const SandboxInfo a = create();
  const SnapshotResult first = snapshot(a.id, "one"), second = snapshot(a.id);
  const std::vector<SnapshotInfo> all = host_->snapshots().value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].id, second.info.id);
  EXPECT_EQ(host_->get_snapshot("one")->id, first.info.id);
  SnapshotOptions same;
  same.name = "one";
  same.strictness = ForkStrictness::kLoose;
  EXPECT_EQ(host_->snapshot(a.id, same).error().kind(), ErrorKind::kExists);
  same.name = "sn-0123456789abc";
  EXPECT_EQ(host_->snapshot(a.id, same).error().kind(), ErrorKind::kInvalid);
  SnapshotPatch patch;
  patch.name = "other";
  patch.keep_seconds = 0;
  const Result<SnapshotInfo> patched = host_->patch_snapshot("one", patch);
  ASSERT_TRUE(patched);
  EXPECT_FALSE(patched->expires_at_ns);
  EXPECT_EQ(host_->get_snapshot("one").error().kind(), ErrorKind::kNotFound);
  EXPECT_TRUE(host_->remove_snapshot("other"));
  EXPECT_EQ(create_from(first.info.id).error().kind(), ErrorKind::kNotFound);
  EXPECT_TRUE(eventually([&] { return !records().contains(first.info.id); }));
  EXPECT_TRUE(records().contains(second.info.id));
}

TEST_F(SnapshotVmTest, IsForgottenWhenItsTimeIsOver) {
  const SandboxInfo a = create();
  SnapshotOptions o;
  o.strictness = ForkStrictness::kLoose;
  o.keep_seconds = 1;
  const Result<SnapshotResult> taken = host_->snapshot(a.id, o);
  ASSERT_TRUE(taken);
  EXPECT_TRUE(eventually([&] { return !records().contains(taken->info.id); }));
  EXPECT_TRUE(host_->snapshots()->empty());
}

TEST_F(SnapshotVmTest, OneThatIsRemovedLivesOnUnderWhatWasStartedFromIt) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);
  const SnapshotResult taken = snapshot(a.id);
  const SandboxInfo b = started(taken.info.id);
  ASSERT_TRUE(host_->remove_snapshot(taken.info.id));
  ASSERT_TRUE(host_->remove(a.id));
  std::this_thread::sleep_for(Milliseconds(1200));  // twice as long as the store waits before it looks
  EXPECT_TRUE(records().contains(taken.info.id));
  EXPECT_EQ(count(b.id), 2u);  // by a daemon that knows its base from the record alone
  EXPECT_TRUE(host_->remove(b.id));
  EXPECT_TRUE(eventually([&] { return records().empty(); }));
}

TEST_F(SnapshotVmTest, APausedSandboxHasNothingButItsSavedState) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);
  pause(a.id);
  EXPECT_TRUE(monitors_of(root_).empty());  // the daemon that had a zygote is gone
  EXPECT_TRUE(settled_overlays(0).empty());
  EXPECT_FALSE(names_in(root_ + "/run/vm").contains(a.id + ".sock"));
  EXPECT_EQ(host_->list().size(), 1u);
  EXPECT_TRUE(host_->snapshots()->empty()) << "its saved state is nobody's snapshot";
  resume(a.id);
  EXPECT_EQ(count(a.id), 2u);
}

TEST_F(SnapshotVmTest, PauseAndResumeManyTimes) {
  const SandboxInfo a = create();
  for (uint32_t i = 1; i <= 10; i++) {
    EXPECT_EQ(count(a.id), i);
    pause(a.id);
    resume(a.id);
  }
  EXPECT_TRUE(eventually([&] { return records().size() == 1; })) << "each saved state takes the place of the one before";
  pause(a.id);
  EXPECT_TRUE(eventually([&] { return records().size() == 1; })) << "a paused one needs what it was started from";
}

TEST_F(SnapshotVmTest, APausedSandboxComesBackAfterItsDaemonAndItsForksLeaveItPaused) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);
  pause(a.id);
  host_.reset();
  open();
  EXPECT_EQ(host_->get(a.id)->state, SandboxState::kPaused);
  const ForkResult forked = fork(a.id, 3);
  ASSERT_EQ(forked.children.size(), 3u);
  EXPECT_EQ(forked.children[0].parent_id, a.id);
  EXPECT_EQ(host_->get(a.id)->state, SandboxState::kPaused);
  EXPECT_EQ(count(forked.children[0].id), 2u);
  EXPECT_EQ(count(forked.children[0].id), 3u);
  EXPECT_EQ(count(forked.children[1].id), 2u);
  resume(a.id);
  EXPECT_EQ(count(a.id), 2u);
}

TEST_F(SnapshotVmTest, APausedSandboxIsRemovedWithoutWaking) {
  const SandboxInfo a = create();
  pause(a.id);
  EXPECT_TRUE(host_->remove(a.id));
  EXPECT_EQ(host_->get(a.id).error().kind(), ErrorKind::kNotFound);
  EXPECT_TRUE(eventually([&] { return records().empty(); }));
  EXPECT_EQ(monitors_of(root_).size(), 1u);
}

TEST_F(SnapshotVmTest, TimeStandsStillForAPausedSandbox) {
  CreateOptions o;
  o.template_name = "tiny";
  o.ttl_seconds = 3;
  const SandboxInfo a = host_->create(o).value();
  pause(a.id);
  EXPECT_FALSE(host_->get(a.id)->expires_at_ns);
  std::this_thread::sleep_for(Milliseconds(3500));
  EXPECT_EQ(host_->get(a.id)->state, SandboxState::kPaused);
  resume(a.id);
  EXPECT_TRUE(host_->get(a.id)->expires_at_ns);
  EXPECT_TRUE(eventually([&] { return !host_->get(a.id); })) << "what was left of its time is over";
}

TEST_F(SnapshotVmTest, APauseThatFailsLeavesItRunning) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);
  host_.reset();
  options_ = tiny_options(root_);
  options_->disk_reserve_mib = uint64_t{1} << 40;  // no disk has as much
  open();
  EXPECT_EQ(host_->pause(a.id).error().kind(), ErrorKind::kNoSpace);
  EXPECT_EQ(host_->get(a.id)->state, SandboxState::kRunning);
  options_.reset();
  EXPECT_EQ(count(a.id), 2u);
  pause(a.id);
}

TEST_F(SnapshotVmTest, AResumeThatFailsLeavesItPaused) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);
  pause(a.id);
  host_.reset();
  options_ = tiny_options(root_);
  options_->memory_reserve_mib = uint64_t{1} << 30;
  open();
  EXPECT_EQ(host_->resume(a.id).error().kind(), ErrorKind::kNoMemory);
  EXPECT_EQ(host_->get(a.id)->state, SandboxState::kPaused);
  host_.reset();
  options_->memory_reserve_mib = 64;
  options_->vmm_program = "/bin/false";
  open();
  EXPECT_FALSE(host_->resume(a.id));
  EXPECT_EQ(host_->get(a.id)->state, SandboxState::kPaused);
  host_.reset();
  options_.reset();
  open();
  resume(a.id);
  EXPECT_EQ(count(a.id), 2u);
}

TEST_F(SnapshotVmTest, OfTwoCallsAtOnceOneWins) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);
  for (int round = 0; round < 3; round++) {
    for (const auto& call : {&Host::pause, &Host::resume}) {
      std::array<std::optional<Result<SandboxInfo>>, 2> answers;
      std::vector<std::thread> callers;
      for (auto& answer : answers) callers.emplace_back([&] { answer = (host_.get()->*call)(a.id); });
      for (std::thread& t : callers) t.join();
      EXPECT_NE(answers[0]->has_value(), answers[1]->has_value());
      for (const auto& answer : answers)
        if (!*answer) {
          EXPECT_EQ(answer->error().kind(), ErrorKind::kConflict) << answer->error().to_string();
        }
    }
  }
  EXPECT_EQ(count(a.id), 2u);
}

TEST_F(SnapshotVmTest, OfAMonitorThatDiesMeanwhile) {
  const SandboxInfo a = create();
  ::kill(pid_of(a.id), SIGKILL);
  SnapshotOptions o;
  o.strictness = ForkStrictness::kLoose;
  EXPECT_FALSE(host_->snapshot(a.id, o));
  EXPECT_FALSE(host_->pause(a.id));
  EXPECT_EQ(wait_state(a.id, SandboxState::kFailed), SandboxState::kFailed);
  EXPECT_TRUE(eventually([&] { return records().empty(); }));
}

TEST_F(SnapshotVmTest, RoundsLeaveNothing) {
  const auto round = [&] {
    const SandboxInfo a = create();
    const SnapshotResult taken = snapshot(a.id);
    const SandboxInfo b = started(taken.info.id);
    pause(a.id);
    resume(a.id);
    ASSERT_TRUE(host_->remove_snapshot(taken.info.id));
    ASSERT_TRUE(host_->remove(a.id));
    ASSERT_TRUE(host_->remove(b.id));
  };
  const auto nothing = [&] {
    return records().empty() && captured().size() <= 1 && monitors_of(root_).size() == 1 &&
           names_in(root_ + "/state/overlays").empty() && names_in(root_ + "/state/machines").size() == 1;
  };
  round();
  EXPECT_TRUE(eventually([&] { return nothing() && captured().size() == 1; }));
  const size_t descriptors = settled_descriptors();
  for (int i = 0; i < 5; i++) round();
  EXPECT_TRUE(eventually(nothing));
  EXPECT_EQ(settled_descriptors(descriptors), descriptors);
}

// ---- templates ----

TEST_F(SnapshotVmTest, ATemplateStartsFromItsMachineInTheStoreAfterARestart) {
  const SandboxInfo a = create();
  EXPECT_EQ(origin(), "boot");
  EXPECT_TRUE(eventually([&] { return captured().size() == 1; })) << "the machine is not stored behind the boot";
  restart();
  const SandboxInfo b = create();
  EXPECT_EQ(origin(), "store");
  const SnapshotResult taken = snapshot(b.id);
  EXPECT_LT(taken.changed_pages, 64u) << "it does not stand on what it was started from";
  restart();
  const SandboxInfo c = create();
  EXPECT_EQ(origin(), "store");
  EXPECT_EQ(captured().size(), 1u);
  EXPECT_EQ(count(b.id), 1u);
  EXPECT_EQ(count(c.id), 1u);
  EXPECT_EQ(count(c.id), 2u);
  EXPECT_EQ(count(started(taken.info.id).id), 1u);
  EXPECT_EQ(fork(c.id, 2).children.size(), 2u);
}

TEST_F(SnapshotVmTest, ATemplateOfAnotherSizeOrProcessorIsBooted) {
  create();
  ASSERT_TRUE(eventually([&] { return captured().size() == 1; }));
  const std::string first = *captured().begin();
  restart();
  CreateOptions o;
  o.template_name = "tiny";
  o.memory_mib = 66;
  ASSERT_TRUE(host_->create(o));
  EXPECT_EQ(origin(), "boot");
  EXPECT_TRUE(eventually([&] { return captured().size() == 2; })) << "each size has its own";
  host_.reset();
  SnapshotDetails details = decode_details(catalogue().get(first)->details).value();
  details.info.cpu_model = "another";
  ASSERT_TRUE(catalogue().replace_details(first, encode_details(details)));
  open();
  create();
  EXPECT_EQ(origin(), "boot");
}

TEST_F(SnapshotVmTest, AMachineThatDoesNotStartIsBootedAndReplaced) {
  create();
  ASSERT_TRUE(eventually([&] { return captured().size() == 1; }));
  const std::string first = *captured().begin();
  host_.reset();
  commit::SnapshotRecord record = catalogue().get(first).value();
  record.machine->vmstate_bytes -= 1;
  ASSERT_TRUE(catalogue().remove(first));
  ASSERT_TRUE(catalogue().add(first, record));
  open();
  EXPECT_EQ(create().state, SandboxState::kRunning);
  EXPECT_EQ(origin(), "boot");
  EXPECT_TRUE(eventually([&] { return captured().size() == 2 || !captured().contains(first); }));
  restart();
  create();
  EXPECT_EQ(origin(), "store");
}

TEST_F(SnapshotVmTest, TheMachineOfATemplateGoesWithIt) {
  const SandboxInfo a = create();
  ASSERT_TRUE(eventually([&] { return captured().size() == 1; }));
  restart();
  const SandboxInfo b = create();
  EXPECT_EQ(origin(), "store");
  ASSERT_TRUE(testing::upload_tiny(*host_, "tiny", "blk"));  // with another disk
  ASSERT_TRUE(host_->remove(a.id));
  std::this_thread::sleep_for(Milliseconds(1200));  // twice as long as the store waits before it looks
  EXPECT_EQ(captured().size(), 1u) << "a sandbox stands on it";
  EXPECT_EQ(count(b.id), 1u);
  ASSERT_TRUE(host_->remove(b.id));
  EXPECT_TRUE(eventually([&] { return captured().empty(); }));
  create();
  EXPECT_EQ(origin(), "boot");
  EXPECT_TRUE(eventually([&] { return captured().size() == 1; }));
  for (const SandboxInfo& s : host_->list()) ASSERT_TRUE(host_->remove(s.id));
  ASSERT_TRUE(host_->remove_template("tiny"));
  EXPECT_TRUE(eventually([&] { return captured().empty(); }));
}

TEST_F(SnapshotVmTest, TheMachineOfATemplateThatIsNotUsedIsForgotten) {
  host_.reset();
  options_ = tiny_options(root_);
  options_->keep_booted = Milliseconds(4000);
  open();
  for (int i = 0; i < 6; i++) {
    ASSERT_TRUE(host_->remove(create().id));
    std::this_thread::sleep_for(Milliseconds(1000));
  }
  EXPECT_EQ(captured().size(), 1u) << "it was used all the time";
  restart();
  std::this_thread::sleep_for(Milliseconds(5000));
  EXPECT_TRUE(captured().empty());
  options_->keep_booted = Milliseconds(0);
  restart();
  create();
  EXPECT_EQ(origin(), "boot");
  std::this_thread::sleep_for(Milliseconds(1000));
  EXPECT_TRUE(captured().empty()) << "none is to be kept";
}

TEST_F(SnapshotVmTest, ASnapshotBecomesATemplate) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);
  const SnapshotResult taken = snapshot(a.id);
  const Result<TemplateInfo> saved = host_->save_template("warm", {.snapshot = taken.info.id, .env = {{"A", "b"}}});
  ASSERT_TRUE(saved) << saved.error().to_string();
  EXPECT_TRUE(saved->files.empty());
  EXPECT_EQ(saved->kernel_release, "tiny");
  ASSERT_TRUE(host_->remove_snapshot(taken.info.id));
  ASSERT_TRUE(host_->remove(a.id));
  EXPECT_TRUE(eventually([&] { return records() == std::set<std::string>{saved->saved}; })) << "it needs more than its own";
  EXPECT_TRUE(host_->snapshots()->empty());
  EXPECT_EQ(create_from(saved->saved).error().kind(), ErrorKind::kNotFound);
  const SandboxInfo b = create("warm");
  EXPECT_EQ(b.template_name, "warm");
  EXPECT_EQ(b.env.at("A"), "b");
  EXPECT_EQ(count(b.id), 2u);  // by another daemon afterwards
  const SandboxInfo c = create("warm");
  EXPECT_LT(snapshot(c.id).changed_pages, 64u);
  EXPECT_EQ(count(c.id), 2u);
  EXPECT_EQ(count(c.id), 3u);
  CreateOptions larger;
  larger.template_name = "warm";
  larger.memory_mib = 128;
  EXPECT_EQ(host_->create(larger).error().kind(), ErrorKind::kInvalid);
}

TEST_F(SnapshotVmTest, ASavedTemplateIsReplacedAndRemovedAsOthersAre) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);
  const SnapshotResult first = snapshot(a.id);
  EXPECT_EQ(count(a.id), 2u);
  const SnapshotResult second = snapshot(a.id);
  const std::string old = host_->save_template("warm", {.snapshot = first.info.id, .env = {}})->saved;
  const SandboxInfo b = create("warm");
  const std::string now = host_->save_template("warm", {.snapshot = second.info.id, .env = {}})->saved;
  EXPECT_EQ(count(create("warm").id), 3u);
  EXPECT_EQ(count(b.id), 2u);
  EXPECT_TRUE(records().contains(old)) << "a sandbox stands on it";
  ASSERT_TRUE(host_->remove(b.id));
  EXPECT_TRUE(eventually([&] { return !records().contains(old); }));
  ASSERT_TRUE(testing::upload_tiny(*host_, "warm", "blk"));
  EXPECT_EQ(count(create("warm").id), 1u);
  for (const SandboxInfo& s : host_->list()) ASSERT_TRUE(host_->remove(s.id));
  EXPECT_TRUE(eventually([&] { return !records().contains(now); }));
  ASSERT_TRUE(host_->save_template("warm", {.snapshot = second.info.id, .env = {}}));
  EXPECT_EQ(count(create("warm").id), 3u);
  for (const SandboxInfo& s : host_->list()) ASSERT_TRUE(host_->remove(s.id));
  ASSERT_TRUE(host_->remove_template("warm"));
  EXPECT_TRUE(eventually([&] { return records() == std::set<std::string>{first.info.id, second.info.id}; }));
  EXPECT_EQ(host_->save_template("warm", {.snapshot = "nothere", .env = {}}).error().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(host_->save_template("Not a name", {.snapshot = first.info.id, .env = {}}).error().kind(), ErrorKind::kInvalid);
}

}  // namespace
}  // namespace ramet::host
