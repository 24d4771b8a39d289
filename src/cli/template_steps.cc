#include "cli/template_steps.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "cli/build_log.h"
#include "cli/commands.h"
#include "cli/content_digest.h"
#include "cli/exec_reader.h"
#include "cli/json_text.h"
#include "cli/text.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;
using Kind = BuildStep::Kind;

constexpr int64_t kKeepSeconds = 7 * 86400;
constexpr int64_t kSandboxSeconds = 6 * 3600;  // of one step: whoever is killed leaves nothing for ever
constexpr Milliseconds kBetweenChecks{200};
constexpr int kFreezeAttempts = 5;

class Build {
 public:
  Build(Session& session, const ApiClient& api, std::string name, const BuildPlan& plan)
      : session_(session), api_(api), name_(std::move(name)), plan_(plan) {}
  ~Build() { end_sandbox(); }
  Build(const Build&) = delete;
  Build& operator=(const Build&) = delete;

  Result<json::value> run(BuildCache cache);

 private:
  Result<std::string> origin() const;
  Result<size_t> first_to_do(BuildCache cache);
  void note_step(size_t index, const char* more) const;
  // How later steps are done, after one that does not change the machine.
  void apply(const BuildStep& step);
  Status do_step(size_t index);
  Status need_sandbox();
  Status run_command(const BuildStep& step, size_t index);
  Status copy(const BuildStep& step, size_t index);
  Status start(const BuildStep& step, size_t index);
  Status still_runs(const BuildStep& step, size_t index, int64_t pid);
  enum class Caches { kWarm, kDropped };
  Status keep(const std::string& key, const std::string& what, Caches caches);
  void end_sandbox();

  std::string path(const std::string& rest) const { return "/v1/sandboxes/" + sandbox_ + rest; }
  json::object command(const std::string& text) const {
    json::object body{{"command", text}};
    if (!env_.empty()) body["env"] = object_of(env_);
    if (!user_.empty()) body["user"] = user_;
    if (!directory_.empty()) body["cwd"] = directory_;
    return body;
  }
  std::string words(size_t index) const {
    return "step " + std::to_string(index + 1) + " of " + std::to_string(plan_.steps.size()) + " (`" +
           title(plan_.steps[index]) + "`)";
  }

  Session& session_;
  const ApiClient& api_;
  const std::string name_;
  const BuildPlan& plan_;
  std::vector<std::string> keys_;
  std::map<std::string, std::string> env_;
  std::string user_, directory_;
  std::string sandbox_;   // empty: none
  std::string snapshot_;  // what the machine is now; empty: nothing of it was kept yet
};

std::string snapshot_name(const std::string& key) { return "build-" + key.substr(0, 40); }

// A template's digest or a snapshot's id: what is built from it is another when it is.
Result<std::string> Build::origin() const {
  if (!plan_.snapshot.empty()) {
    TRY_ASSIGN(const json::value snapshot, api_.call("GET", "/v1/snapshots/" + percent_encode(plan_.snapshot)));
    return "snapshot " + text_of(snapshot.as_object(), "id");
  }
  TRY_ASSIGN(const json::value answer, api_.call("GET", "/v1/templates"));
  for (const json::value& t : answer.at("templates").as_array())
    if (text_of(t.as_object(), "name") == plan_.from) return "template " + text_of(t.as_object(), "digest");
  return tl::unexpected(Error(ErrorKind::kNotFound, "there is no template `" + plan_.from + "` to build from")
                            .with_hint("`ramet template ls` lists them; `ramet template build base` makes base."));
}

// Finds the last state that is kept, and says so.
Result<size_t> Build::first_to_do(BuildCache cache) {
  if (cache == BuildCache::kIgnore) return 0;
  TRY_ASSIGN(const json::value answer, api_.call("GET", "/v1/snapshots"));
  std::map<std::string, std::string> there;
  for (const json::value& s : answer.at("snapshots").as_array())
    there[text_of(s.as_object(), "name")] = text_of(s.as_object(), "id");
  for (size_t i = plan_.steps.size(); i-- > 0;) {
    if (!plan_.steps[i].changes_machine()) continue;
    const auto found = there.find(snapshot_name(keys_[i]));
    if (found == there.end()) continue;
    // Whoever uses it keeps it. One that went this moment is made anew.
    if (!api_.call("PATCH", "/v1/snapshots/" + found->second, json::object{{"keep_seconds", kKeepSeconds}})) continue;
    snapshot_ = found->second;
    return i + 1;
  }
  return 0;
}

void Build::note_step(size_t index, const char* more) const {
  session_.note("step " + std::to_string(index + 1) + "/" + std::to_string(plan_.steps.size()) + ": " +
                title(plan_.steps[index]) + more);
}

void Build::apply(const BuildStep& step) {
  if (step.kind == Kind::kUser) user_ = step.text;
  if (step.kind == Kind::kWorkdir) directory_ = step.text;
  for (const auto& [key, value] : step.env) env_[key] = value;
}

Status Build::need_sandbox() {
  if (!sandbox_.empty()) {
    TRY(api_.call("PATCH", path(""), json::object{{"ttl_seconds", kSandboxSeconds}}));
    return {};
  }
  json::object body{{"ttl_seconds", kSandboxSeconds}, {"labels", json::object{{"build", name_}}}};
  if (!snapshot_.empty()) {
    body["snapshot"] = snapshot_;
  } else if (!plan_.snapshot.empty()) {
    body["snapshot"] = plan_.snapshot;
  } else {
    body["template"] = plan_.from;
    if (plan_.vcpus) body["vcpus"] = *plan_.vcpus;
    if (plan_.memory_mib) body["memory_mib"] = *plan_.memory_mib;
  }
  TRY_ASSIGN(const json::value made, api_.call("POST", "/v1/sandboxes", body));
  sandbox_ = text_of(made.as_object(), "id");
  return {};
}

void Build::end_sandbox() {
  if (sandbox_.empty()) return;
  (void)api_.call("DELETE", path(""));  // its time ends it else
  sandbox_.clear();
}

Status Build::run_command(const BuildStep& step, size_t index) {
  json::object body = command(step.text);
  body["stream"] = true;
  TRY_ASSIGN(const std::unique_ptr<HttpStream> stream, api_.open_stream("POST", path("/exec"), body));
  BuildLog log(session_.quiet ? BuildLog::Show::kNothing : BuildLog::Show::kLines);
  const Result<ExecEnd> end = read_exec_events(*stream, log.sinks());
  log.flush();
  if (!end) return tl::unexpected(Error(end.error()).with_context(words(index)));
  if (end->exit_code == 0) return {};
  return fail(ErrorKind::kIo, words(index) + " ended with exit code " + std::to_string(end->exit_code) + "; " + log.tail());
}

Status Build::copy(const BuildStep& step, size_t index) {
  Session silent = session_;  // the copy's own progress and answer are not the build's
  silent.quiet = true;
  silent.json = false;
  const std::string to = step.to.starts_with('/') || directory_.empty() ? step.to : directory_ + "/" + step.to;
  const CopyOptions options{.from = source_of(plan_, step), .to = sandbox_ + ":" + to, .user = user_};
  const Result<int> done = cmd_cp(silent, options);
  if (!done) return tl::unexpected(Error(done.error()).with_context(words(index)));
  return {};
}

// Errors: kIo (it ended with a failure). One that ended well may have left others behind that work.
Status Build::still_runs(const BuildStep& step, size_t index, int64_t pid) {
  TRY_ASSIGN(const json::value answer, api_.call("GET", path("/processes")));
  for (const json::value& p : answer.at("processes").as_array()) {
    if (p.at("pid").to_number<int64_t>() != pid || p.at("running").as_bool()) continue;
    BuildLog log(BuildLog::Show::kNothing);
    TRY_ASSIGN(const std::unique_ptr<HttpStream> stream,
               api_.open_stream("GET", path("/processes/" + std::to_string(pid) + "/output")));
    TRY_ASSIGN(const ExecEnd end, read_exec_events(*stream, log.sinks()));
    if (end.exit_code == 0) return {};
    return fail(ErrorKind::kIo, words(index) + ": `" + printable(step.text) + "` ended with exit code " +
                                    std::to_string(end.exit_code) + " before it was ready; " + log.tail());
  }
  return {};
}

Status Build::start(const BuildStep& step, size_t index) {
  json::object body = command(step.text);
  body["detach"] = true;
  TRY_ASSIGN(const json::value started, api_.call("POST", path("/exec"), body));
  const int64_t pid = started.at("pid").to_number<int64_t>();
  if (step.ready.empty()) return still_runs(step, index, pid);
  json::object check = command(step.ready);
  check["timeout_seconds"] = 30;
  const Deadline deadline = deadline_after(std::chrono::seconds(step.ready_seconds));
  for (;;) {
    TRY_ASSIGN(const json::value answer, api_.call("POST", path("/exec"), check));
    const int64_t code = answer.at("exit_code").to_number<int64_t>();
    if (code == 0) return {};
    TRY(still_runs(step, index, pid));
    if (MonotonicClock::now() >= deadline) {
      BuildLog log(BuildLog::Show::kNothing);
      log.add(text_of(answer.as_object(), "stdout") + text_of(answer.as_object(), "stderr"));
      return fail(ErrorKind::kTimeout, words(index) + ": the check `" + printable(step.ready) + "` still ends with exit code " +
                                           std::to_string(code) + " after " + std::to_string(step.ready_seconds) + " s; " +
                                           log.tail());
    }
    std::this_thread::sleep_for(kBetweenChecks);
  }
}

Status Build::keep(const std::string& key, const std::string& what, Caches caches) {
  const std::string name = snapshot_name(key);
  const json::object body{{"name", name},
                          {"keep_seconds", kKeepSeconds},
                          {"drop_caches", caches == Caches::kDropped},
                          {"labels", json::object{{"build", name_}, {"step", what.substr(0, 200)}}}};
  for (int attempt = 1;; attempt++) {
    const Result<json::value> made = api_.call("POST", path("/snapshots"), body);
    if (made) {
      snapshot_ = text_of(made->at("snapshot").as_object(), "id");
      return {};
    }
    if (made.error().kind() == ErrorKind::kExists) {  // another build came here first, or the cache was not to be used
      TRY(api_.call("DELETE", "/v1/snapshots/" + name));
    } else if (made.error().kind() != ErrorKind::kNotQuiescent) {
      return tl::unexpected(made.error());
    }
    if (attempt == kFreezeAttempts) return tl::unexpected(made.error());
  }
}

Status Build::do_step(size_t index) {
  const BuildStep& step = plan_.steps[index];
  TRY(need_sandbox());
  if (step.kind == Kind::kRun) TRY(run_command(step, index));
  if (step.kind == Kind::kCopy) TRY(copy(step, index));
  if (step.kind == Kind::kStart) TRY(start(step, index));
  // What was read and written lies in the guest's cache and would be kept twice. What is started is to be warm.
  return keep(keys_[index], title(step), step.kind == Kind::kStart ? Caches::kWarm : Caches::kDropped);
}

Result<json::value> Build::run(BuildCache cache) {
  TRY(check_plan(plan_));
  TRY_ASSIGN(const std::string from, origin());
  TRY_ASSIGN(keys_, step_keys(plan_, from));
  TRY_ASSIGN(const size_t first, first_to_do(cache));
  for (size_t i = 0; i < plan_.steps.size(); i++) {
    const bool done = i < first;
    note_step(i, done && plan_.steps[i].changes_machine() ? " (kept)" : "");
    if (!plan_.steps[i].changes_machine())
      apply(plan_.steps[i]);
    else if (!done)
      TRY(do_step(i));
  }
  if (snapshot_.empty()) {  // no step changed it: the template is what it was built from
    TRY(need_sandbox());
    TRY(keep(sha256_hex(keys_.empty() ? from : keys_.back()), "as it was", Caches::kWarm));
  }
  end_sandbox();
  return api_.call("POST", "/v1/templates/" + percent_encode(name_),
                   json::object{{"snapshot", snapshot_}, {"env", object_of(env_)}});
}

}  // namespace

Result<json::value> build_by_steps(Session& session, const std::string& name, const BuildPlan& plan, BuildCache cache) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  Build build(session, *api, name, plan);
  return build.run(cache);
}

}  // namespace ramet::cli
