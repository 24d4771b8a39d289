// cli/template_steps.h - builds a template by steps in a sandbox of the server. What the machine is after a step is kept there
// as a snapshot named by the step's key, for a week after its last use: the next build starts after the last step that has one.
// Not here: the plan and its keys (build_plan.h), templates of Debian packages (cmd_template.cc). Thread: one.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/build_plan.h"
#include "cli/session.h"

namespace ramet::cli {

enum class BuildCache { kUse, kIgnore };
// What the steps print goes to stderr. The template, as the server describes it.
// Errors: kIo (a step failed; names it, its exit code and the end of its output), kTimeout (what was started is not ready),
// those of the API. The sandbox of the build is gone in any case, what earlier steps came to stays.
Result<boost::json::value> build_by_steps(Session& session, const std::string& name, const BuildPlan& plan, BuildCache cache);

}  // namespace ramet::cli
