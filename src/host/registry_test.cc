#include "host/registry.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace ramet::host {
namespace {

class RegistryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/ramet-registry-XXXXXX";
    dir_ = ::mkdtemp(path);
    reopen();
  }
  void TearDown() override {
    registry_.reset();
    std::error_code ec;
    std::filesystem::remove_all(dir_, ec);
  }
  // What the next daemon sees.
  void reopen() {
    registry_.reset();
    Result<std::unique_ptr<Registry>> r = Registry::open(dir_ + "/ramet.db");
    ASSERT_TRUE(r) << r.error().to_string();
    registry_ = std::move(*r);
  }
  static MachineRow row(const std::string& id, const std::string& parent = {}) {
    MachineRow r;
    r.info.id = id;
    r.info.family_id = parent.empty() ? id : parent;
    if (!parent.empty()) r.info.parent_id = parent;
    r.info.template_name = "base";
    r.info.labels = {{"k", "v\"\n"}};
    return r;
  }
  static void make_older(SqlDatabase& db, int version, const std::vector<std::string>& later_columns) {
    for (const std::string& column : later_columns)
      ASSERT_TRUE(db.exec(("ALTER TABLE machines DROP COLUMN " + column).c_str()));
    ASSERT_TRUE(db.exec(("UPDATE meta SET value='" + std::to_string(version) + "' WHERE key='schema'").c_str()));
  }
  ForkIntent intent() { return {"op-1", "a", "a-next", {row("b", "a"), row("c", "a")}, {"b-own", "c-own"}}; }
  std::vector<std::string> chain(const std::string& id) { return *registry_->chain(id); }

  using Ids = std::vector<std::string>;
  std::string dir_;
  std::unique_ptr<Registry> registry_;
};

TEST_F(RegistryTest, KeepsWhatItWasTold) {
  MachineRow a = row("a");
  a.info.expires_at_ns = 17;
  a.info.env = {{"PATH", "/bin"}};
  ASSERT_TRUE(registry_->add_machine(a, {}, "a-own"));
  ASSERT_TRUE(registry_->set_process("a", 12, 34, 56, 78, 9));
  a.info.timing.total_ms = 1.5;
  ASSERT_TRUE(registry_->set_running({a.info}));
  reopen();
  const std::vector<MachineRow> rows = *registry_->machines();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].info.state, SandboxState::kRunning);
  EXPECT_EQ(rows[0].info.labels, a.info.labels);
  EXPECT_EQ(rows[0].info.env, a.info.env);
  EXPECT_EQ(rows[0].info.expires_at_ns, 17);
  EXPECT_EQ(rows[0].info.timing.total_ms, 1.5);
  EXPECT_EQ(rows[0].pid, 12);
  EXPECT_EQ(rows[0].ram_bytes, 78u);
  EXPECT_FALSE(rows[0].info.parent_id);
}

TEST_F(RegistryTest, AForkThatSwappedFreezesTheParentsOverlayForAll) {
  ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  ASSERT_TRUE(registry_->begin_fork(intent()));
  reopen();
  ASSERT_EQ(registry_->pending_forks()->size(), 1u);
  EXPECT_EQ((*registry_->pending_forks())[0].children, (Ids{"b", "c"}));
  ASSERT_TRUE(registry_->settle_fork("op-1", true));
  EXPECT_EQ(chain("a"), (Ids{"a-own", "a-next"}));
  EXPECT_EQ(chain("b"), (Ids{"a-own", "b-own"}));
  EXPECT_EQ(*registry_->unsealed(), (Ids{"a-own"}));
  EXPECT_TRUE(registry_->pending_forks()->empty());
  EXPECT_TRUE(registry_->doom_unused()->empty());
}

TEST_F(RegistryTest, AForkThatDidNotSwapDoomsTheSpare) {
  ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  ASSERT_TRUE(registry_->begin_fork(intent()));
  EXPECT_TRUE(registry_->doom_unused()->empty()) << "the spare belongs to the operation";
  ASSERT_TRUE(registry_->settle_fork("op-1", false));
  EXPECT_EQ(chain("a"), (Ids{"a-own"}));
  EXPECT_EQ(chain("b"), (Ids{"b-own"}));
  EXPECT_TRUE(registry_->unsealed()->empty());
  EXPECT_EQ(*registry_->doom_unused(), (Ids{"a-next"}));
}

TEST_F(RegistryTest, SettlingTwiceChangesNothing) {
  ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  ASSERT_TRUE(registry_->begin_fork(intent()));
  ASSERT_TRUE(registry_->settle_fork("op-1", true));
  ASSERT_TRUE(registry_->settle_fork("op-1", false));
  EXPECT_EQ(chain("a"), (Ids{"a-own", "a-next"}));
}

TEST_F(RegistryTest, AnOverlayGoesWithItsLastUser) {
  ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  ASSERT_TRUE(registry_->begin_fork(intent()));
  ASSERT_TRUE(registry_->settle_fork("op-1", true));
  ASSERT_TRUE(registry_->release_machine("a"));
  EXPECT_EQ(*registry_->doom_unused(), (Ids{"a-next"}));
  ASSERT_TRUE(registry_->delete_machine("b"));
  EXPECT_EQ(*registry_->doom_unused(), (Ids{"a-next", "b-own"}));
  ASSERT_TRUE(registry_->delete_machine("c"));
  EXPECT_EQ(*registry_->doom_unused(), (Ids{"a-next", "a-own", "b-own", "c-own"}));
  const std::vector<OverlayRow> all = *registry_->overlays();
  for (const OverlayRow& o : all) ASSERT_TRUE(registry_->delete_overlay(o.id));
  EXPECT_TRUE(registry_->overlays()->empty());
}

TEST_F(RegistryTest, AMergedOverlayStandsForTheOldest) {
  ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  ASSERT_TRUE(registry_->begin_fork(intent()));
  ASSERT_TRUE(registry_->settle_fork("op-1", true));
  ASSERT_TRUE(registry_->add_merged("m"));
  ASSERT_TRUE(registry_->set_frozen("a", {"m"}));
  EXPECT_EQ(chain("a"), (Ids{"m", "a-next"}));
  EXPECT_EQ(chain("b"), (Ids{"a-own", "b-own"}));
  EXPECT_TRUE(registry_->doom_unused()->empty());
  EXPECT_FALSE(registry_->set_frozen("nobody", {"m"}));
}

TEST_F(RegistryTest, AForkOfAZygoteHasNothingToSwap) {
  MachineRow zygote = row("z");
  zygote.role = MachineRole::kZygote;
  ASSERT_TRUE(registry_->add_machine(row("builder"), {}, "boot"));
  ASSERT_TRUE(registry_->add_machine(zygote, {"boot"}, {}));
  ASSERT_TRUE(registry_->delete_machine("builder"));
  ASSERT_TRUE(registry_->begin_fork({"op-1", "z", {}, {row("b")}, {"b-own"}}));
  ASSERT_TRUE(registry_->settle_fork("op-1", false));
  EXPECT_EQ(chain("z"), (Ids{"boot"}));
  EXPECT_EQ(chain("b"), (Ids{"boot", "b-own"}));
  EXPECT_TRUE(registry_->doom_unused()->empty());
}

TEST_F(RegistryTest, AnEndIsDecidedBeforeItsProcessIsForgotten) {
  ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  ASSERT_TRUE(registry_->set_process("a", 12, 34, 0, 0, 0));
  ASSERT_TRUE(registry_->set_ended("a", SandboxState::kGone, "removed"));
  reopen();
  const std::vector<MachineRow> rows = *registry_->machines();
  EXPECT_EQ(rows[0].info.state, SandboxState::kGone);
  EXPECT_EQ(rows[0].pid, 12) << "the next daemon has to kill it";
}

TEST_F(RegistryTest, ChildrenBecomeRunningTogether) {
  ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  ASSERT_TRUE(registry_->add_machine(row("b"), {}, "b-own"));
  ASSERT_TRUE(registry_->set_running({row("a").info, row("b").info}));
  const std::vector<MachineRow> rows = *registry_->machines();
  for (const MachineRow& r : rows) EXPECT_EQ(r.info.state, SandboxState::kRunning);
}

TEST_F(RegistryTest, ChildrenStandOnTheBaseOfTheirParent) {
  MachineRow a = row("a");
  a.base_image = "disk";
  ASSERT_TRUE(registry_->add_machine(a, {}, "a-own"));
  ASSERT_TRUE(registry_->begin_fork(intent()));
  EXPECT_EQ(*registry_->base_image("b"), "disk");
  EXPECT_EQ(*registry_->base_image("nobody"), "");
}

TEST_F(RegistryTest, MachinesOfTheFirstVersionHaveNoBaseImage) {
  ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  registry_.reset();
  {
    SqlDatabase db = SqlDatabase::open(dir_ + "/ramet.db").value();
    make_older(db, 1, {"base_image", "base_memory", "saved", "idle_seconds", "time_left_ns"});
  }
  reopen();
  ASSERT_EQ(registry_->machines()->size(), 1u);
  EXPECT_EQ(*registry_->base_image("a"), "");
  reopen();
}

TEST_F(RegistryTest, MachinesOfTheSecondVersionWereNeverPaused) {
  MachineRow a = row("a");
  a.base_image = "disk";
  ASSERT_TRUE(registry_->add_machine(a, {}, "a-own"));
  registry_.reset();
  {
    SqlDatabase db = SqlDatabase::open(dir_ + "/ramet.db").value();
    make_older(db, 2, {"base_memory", "saved", "idle_seconds", "time_left_ns"});
  }
  reopen();
  const Result<MachineBases> bases = registry_->bases("a");
  ASSERT_TRUE(bases);
  EXPECT_EQ(bases->image, "disk");
  EXPECT_EQ(bases->memory + bases->saved, "");
  reopen();
}

TEST_F(RegistryTest, MachinesOfTheThirdVersionArePausedOnRequestOnly) {
  ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  ASSERT_TRUE(registry_->set_paused("a", "sn-1"));
  registry_.reset();
  {
    SqlDatabase db = SqlDatabase::open(dir_ + "/ramet.db").value();
    make_older(db, 3, {"idle_seconds", "time_left_ns"});
  }
  reopen();
  const MachineRow a = registry_->machine("a").value();
  EXPECT_EQ(a.info.idle_seconds, 0u);
  EXPECT_FALSE(a.time_left_ns) << "its saved state says how long";
  EXPECT_EQ(a.saved, "sn-1");
  reopen();
}

TEST_F(RegistryTest, WhatAPausedMachineHasLeftOfItsTimeCountsOnce) {
  MachineRow a = row("a");
  a.info.idle_seconds = 5;
  ASSERT_TRUE(registry_->add_machine(a, {}, "a-own"));
  EXPECT_EQ(registry_->machine("a")->info.idle_seconds, 5u);
  EXPECT_FALSE(registry_->machine("a")->time_left_ns);
  ASSERT_TRUE(registry_->set_idle("a", 7));
  ASSERT_TRUE(registry_->set_paused("a", "sn-1"));
  ASSERT_TRUE(registry_->set_time_left("a", 17));
  reopen();
  EXPECT_EQ(registry_->machine("a")->info.idle_seconds, 7u);
  EXPECT_EQ(registry_->machine("a")->time_left_ns, 17);
  ASSERT_TRUE(registry_->set_running({a.info}));
  EXPECT_FALSE(registry_->machine("a")->time_left_ns);
}

TEST_F(RegistryTest, APausedMachineIsResumedOnWhatItsZygoteStandsOn) {
  ASSERT_TRUE(registry_->add_machine(row("a"), {}, "a-own"));
  ASSERT_TRUE(registry_->set_state("a", SandboxState::kPausing));
  ASSERT_TRUE(registry_->set_paused("a", "sn-1"));
  ASSERT_TRUE(registry_->release_machine("a"));
  EXPECT_EQ(registry_->machine("a")->saved, "sn-1");
  EXPECT_EQ(registry_->machine("a")->info.state, SandboxState::kPaused);
  EXPECT_EQ(registry_->bases("a")->image + registry_->bases("a")->memory, "sn-1sn-1") << "not what it was started from";
  MachineRow zygote = row("z");
  zygote.role = MachineRole::kZygote;
  zygote.base_image = zygote.base_memory = "sn-1";
  ASSERT_TRUE(registry_->add_machine(zygote, {}, {}));
  ASSERT_TRUE(registry_->begin_resume({"op", "z", {}, {registry_->machine("a").value()}, {"a-next"}}));
  EXPECT_EQ(registry_->machine("a")->info.state, SandboxState::kResuming);
  EXPECT_EQ(registry_->bases("a")->memory, "sn-1");
  EXPECT_EQ(*registry_->chain("a"), std::vector<std::string>{"a-next"});
  ASSERT_TRUE(registry_->settle_fork("op", false));
  EXPECT_EQ(registry_->machine("a")->saved, "sn-1") << "until it runs its saved state is what counts";
  ASSERT_TRUE(registry_->set_running({registry_->machine("a")->info}));
  EXPECT_EQ(registry_->machine("a")->saved, "");
}

TEST_F(RegistryTest, WhatWasPutAsideComesBackWhole) {
  MachineRow a = row("a");
  a.base_image = "disk";
  ASSERT_TRUE(registry_->add_machine(a, {}, "a-own"));
  ASSERT_TRUE(registry_->set_process("a", 12, 34, 56, 78, 9));
  MachineRow zygote = row("z");
  zygote.role = MachineRole::kZygote;
  zygote.base_image = zygote.base_memory = "sn-1";
  ASSERT_TRUE(registry_->add_machine(zygote, {}, {}));
  ASSERT_TRUE(registry_->set_aside("a", "old"));
  EXPECT_EQ(registry_->machine("a")->info.state, SandboxState::kResuming);
  EXPECT_EQ(registry_->machine("a")->pid, 0);
  EXPECT_EQ(registry_->machine("old")->pid, 12);
  EXPECT_EQ(registry_->machine("old")->role, MachineRole::kAside);
  EXPECT_EQ(registry_->machine("old")->info.parent_id, "a");
  ASSERT_TRUE(registry_->begin_resume({"op", "z", {}, {registry_->machine("a").value()}, {"a-next"}}));
  ASSERT_TRUE(registry_->settle_fork("op", false));
  EXPECT_EQ(chain("a"), Ids{"a-next"});
  EXPECT_EQ(chain("old"), Ids{"a-own"});
  EXPECT_TRUE(registry_->doom_unused()->empty());
  reopen();
  ASSERT_TRUE(registry_->bring_back("a", "old"));
  EXPECT_EQ(registry_->machine("a")->info.state, SandboxState::kPausing);
  EXPECT_EQ(registry_->machine("a")->pid, 12);
  EXPECT_EQ(registry_->machine("a")->ram_bytes, 78u);
  EXPECT_EQ(registry_->bases("a")->image + registry_->bases("a")->memory, "disk");
  EXPECT_EQ(chain("a"), Ids{"a-own"});
  EXPECT_FALSE(registry_->machine("old"));
  EXPECT_EQ(*registry_->doom_unused(), Ids{"a-next"});
}

TEST_F(RegistryTest, NoticesAnotherBoot) {
  EXPECT_FALSE(*registry_->note_boot("one"));
  EXPECT_FALSE(*registry_->note_boot("one"));
  reopen();
  EXPECT_TRUE(*registry_->note_boot("two"));
}

TEST_F(RegistryTest, RefusesAFileOfANewerVersion) {
  registry_.reset();
  {
    Result<SqlDatabase> db = SqlDatabase::open(dir_ + "/ramet.db");
    ASSERT_TRUE(db->exec("UPDATE meta SET value='99' WHERE key='schema'"));
  }
  const Result<std::unique_ptr<Registry>> r = Registry::open(dir_ + "/ramet.db");
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind(), ErrorKind::kUnsupported);
}

TEST_F(RegistryTest, RefusesAFileThatIsNone) {
  const Result<std::unique_ptr<Registry>> r = Registry::open("/proc/self/exe");
  EXPECT_FALSE(r);
}

}  // namespace
}  // namespace ramet::host
