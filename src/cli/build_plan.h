// cli/build_plan.h - how a template is built: what from, and steps; and the keys that name what the machine is after each step.
//
//   key of the start = what it is built from, and how large      key of a step = the key before, the step, what it copies
//
// So a step has another key as soon as anything that led to it is another: its state is made anew, those before are not.
// Not here: doing it (template_steps.cc). Thread: values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ramet::cli {

struct BuildStep {
  enum class Kind { kRun, kCopy, kEnv, kUser, kWorkdir, kStart } kind = Kind::kRun;
  std::string text;                        // the command; what is copied; the user; the directory
  std::string to;                          // kCopy
  std::map<std::string, std::string> env;  // kEnv
  std::string ready;                       // kStart: succeeds when what was started can be used; empty: at once
  uint64_t ready_seconds = 60;             // kStart
  // Whether the machine is another one after it. The rest says how later steps are done.
  bool changes_machine() const { return kind == Kind::kRun || kind == Kind::kCopy || kind == Kind::kStart; }
};
// For people: "run make".
std::string title(const BuildStep& step);

struct BuildPlan {
  std::string from = "base";  // a template,
  std::string snapshot;       // or, if not empty, a snapshot
  std::optional<uint32_t> vcpus;
  std::optional<uint64_t> memory_mib;
  std::vector<BuildStep> steps;
  std::string directory = ".";  // where what is copied lies
};

// {"from": ..., "steps": [{"run": ...}, ...]}, docs/templates.md.   Errors: kInvalid, with the member that is wrong.
Result<BuildPlan> parse_build_plan(std::string_view json);
// "run make", "copy src /srv/app", "env A=b", "user root", "workdir /srv", "start ./serve".   Errors: kInvalid.
Result<BuildStep> parse_step_words(std::string_view words);
// What holds for the whole: `start` is the last one that changes the machine.   Errors: kInvalid.
Status check_plan(const BuildPlan& plan);

// Of what a copy step copies, on this computer.
std::string source_of(const BuildPlan& plan, const BuildStep& step);

// One for each step. `origin`: what it is built from, other words whenever that is another.
// Errors: those of content_digest().
Result<std::vector<std::string>> step_keys(const BuildPlan& plan, const std::string& origin);

}  // namespace ramet::cli
