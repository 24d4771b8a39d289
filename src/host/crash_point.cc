#include "host/crash_point.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstdlib>
#include <string>

namespace ramet::host {
namespace {

constexpr std::array<std::string_view, 60> kPoints = {
    "boot.journalled",    "boot.files",          "boot.started",      "boot.agent_ready",  "boot.captured",
    "boot.sealed",        "zygote.journalled",   "zygote.started",    "zygote.committed",  "create.journalled",
    "create.files",       "create.requested",    "create.committed",  "create.identified", "create.running",
    "fork.journalled",    "fork.files",          "fork.frozen",       "fork.forked",       "fork.chain",
    "fork.committed",     "fork.identified",     "fork.running",      "remove.marked",     "remove.killed",
    "remove.files",       "remove.row",          "image.stored",      "image.named",       "template.imported",
    "template.published", "adopt.attached",      "commit.journalled", "commit.frozen",     "commit.stored",
    "commit.named",       "snapshot.journalled", "snapshot.forked",   "snapshot.chain",    "snapshot.frozen",
    "snapshot.stored",    "snapshot.named",      "pause.marked",      "pause.stopped",     "pause.saved",
    "pause.released",     "resume.journalled",   "resume.files",      "resume.requested",  "resume.running",
    "template.saved",     "fill.rest",           "fill.fault",        "adopt.faults",      "rollback.marked",
    "rollback.stopped",   "rollback.aside",      "rollback.moved",    "rollback.running",  "rollback.released",
};

struct Wanted {
  std::string step;
  std::atomic<int> hits_left{0};
  Wanted() {
    const char* env = std::getenv("RAMET_CRASH_AT");
    if (!env) return;
    step = env;
    hits_left = 1;
    const size_t colon = step.find(':');
    if (colon == std::string::npos) return;
    hits_left = std::max(1, std::atoi(step.c_str() + colon + 1));
    step.resize(colon);
  }
};

}  // namespace

void crash_point(std::string_view step) {
  assert(std::find(kPoints.begin(), kPoints.end(), step) != kPoints.end());
  static Wanted wanted;
  if (wanted.step.empty() || wanted.step != step) return;
  if (wanted.hits_left.fetch_sub(1) == 1) ::kill(::getpid(), SIGKILL);
}

std::span<const std::string_view> all_crash_points() { return kPoints; }

}  // namespace ramet::host
