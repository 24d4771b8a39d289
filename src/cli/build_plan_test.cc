// Plans of builds, and the keys of their steps.
#include "cli/build_plan.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace ramet::cli {
namespace {

using Kind = BuildStep::Kind;

class BuildPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/ramet-plan-XXXXXX";
    plan_.directory = ::mkdtemp(path);
    std::filesystem::create_directories(plan_.directory + "/src/deep");
    write("src/deep/file", "one");
    for (const char* words : {"env A=b", "run make", "copy src /srv/src", "run make install"})
      plan_.steps.push_back(parse_step_words(words).value());
  }
  void TearDown() override { std::filesystem::remove_all(plan_.directory); }
  void write(const std::string& name, std::string_view text) { ASSERT_TRUE(replace_file(plan_.directory + "/" + name, text)); }
  std::vector<std::string> keys(const std::string& origin = "template x") { return step_keys(plan_, origin).value(); }
  // How many keys, from the first on, are as before.
  size_t equal(const std::vector<std::string>& before, const std::vector<std::string>& now) {
    size_t n = 0;
    while (n < before.size() && n < now.size() && before[n] == now[n]) n++;
    return n;
  }
  BuildPlan plan_;
};

TEST_F(BuildPlanTest, ReadsAFileOfSteps) {
  const Result<BuildPlan> plan = parse_build_plan(R"({"from": "base", "vcpus": 2, "memory_mib": 512, "steps": [
      {"env": {"A": "b"}}, {"user": "root"}, {"workdir": "/srv"}, {"copy": "a", "to": "/b"}, {"run": "make"},
      {"start": "./serve", "ready": "./check", "ready_seconds": 5}]})");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->vcpus, 2u);
  ASSERT_EQ(plan->steps.size(), 6u);
  EXPECT_EQ(plan->steps[0].env.at("A"), "b");
  EXPECT_EQ(plan->steps[3].to, "/b");
  EXPECT_EQ(plan->steps[5].kind, Kind::kStart);
  EXPECT_EQ(plan->steps[5].ready_seconds, 5u);
  EXPECT_TRUE(check_plan(*plan));
}

TEST_F(BuildPlanTest, SaysWhatIsWrong) {
  const auto refusal = [](std::string_view text) {
    const Result<BuildPlan> plan = parse_build_plan(text);
    if (!plan) return plan.error().message();
    const Status whole = check_plan(*plan);
    return whole ? "" : whole.error().message();
  };
  EXPECT_EQ(refusal(R"({"stepps": []})"), "build: `stepps` is not known in a build");
  EXPECT_EQ(refusal(R"({})"), "build: `steps` must be an array");
  EXPECT_EQ(refusal(R"({"steps": [{"run": "a", "user": "b"}]})"), "build: a step has `run` and `user`; it is one of them");
  EXPECT_EQ(refusal(R"({"steps": [{"copy": "a"}]})"), "build: `to` must be a string that is not empty");
  EXPECT_EQ(refusal(R"({"steps": [{"run": "a", "ready": "b"}]})"), "build: `ready` is not known in a run step");
  EXPECT_EQ(refusal(R"({"steps": [{"env": {"A": 1}}]})"), "build: `env` must be an object of strings");
  EXPECT_EQ(refusal(R"({"steps": [{"start": "a", "ready": "b", "ready_seconds": 0}]})"),
            "build: `ready_seconds` must be a number from 1 to 86400");
  EXPECT_EQ(refusal(R"({"steps": [{"start": "a"}, {"run": "b"}]})"),
            "build: nothing can follow `start` but env, user and workdir: `run b`");
  EXPECT_EQ(refusal(R"({"steps": [{"workdir": "srv"}]})"), "build: `workdir srv` is no absolute path");
  EXPECT_EQ(refusal(R"({"snapshot": "warm", "vcpus": 1, "steps": []})"),
            "build: a machine built from a snapshot is as large as that: no vCPUs or memory beside it");
  for (const char* words : {"make", "run", "copy a", "env A", "walk x"}) EXPECT_FALSE(parse_step_words(words)) << words;
}

TEST_F(BuildPlanTest, KeysAreTheSameForTheSame) {
  const std::vector<std::string> before = keys();
  EXPECT_EQ(before.size(), 4u);
  ASSERT_EQ(::utimensat(AT_FDCWD, (plan_.directory + "/src/deep/file").c_str(), nullptr, 0), 0);  // times do not count
  EXPECT_EQ(keys(), before);
}

TEST_F(BuildPlanTest, AChangeCountsFromItsStepOn) {
  const std::vector<std::string> before = keys();
  EXPECT_EQ(equal(before, keys("template y")), 0u);
  write("src/deep/file", "two");
  EXPECT_EQ(equal(before, keys()), 2u);
  write("src/deep/file", "one");
  ASSERT_EQ(::chmod((plan_.directory + "/src/deep/file").c_str(), 0755), 0);
  EXPECT_EQ(equal(before, keys()), 2u);
  std::filesystem::remove_all(plan_.directory + "/src/deep");
  EXPECT_EQ(equal(before, keys()), 2u);
  plan_.steps[1].text = "make all";
  EXPECT_EQ(equal(before, keys()), 1u);
  plan_.steps[0].env["A"] = "c";
  EXPECT_EQ(equal(before, keys()), 0u);
  std::filesystem::remove_all(plan_.directory + "/src");
  EXPECT_FALSE(step_keys(plan_, "template x")) << "there is nothing to copy";
}

}  // namespace
}  // namespace ramet::cli
