#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/json_text.h"
#include "cli/places.h"
#include "cli/text.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;

// One call for each sandbox; one that fails does not keep the others from it.
Result<int> for_each_sandbox(Session& session, const std::vector<std::string>& references, const std::string& operation,
                             const std::string& doing) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  json::array done;
  int status = 0;
  for (const std::string& reference : references) {
    Result<std::string> id = api->resolve(reference);
    Result<json::value> answer = id ? Result<json::value>(nullptr) : tl::unexpected<Error>(id.error());
    if (id) {
      const Waiting waiting(doing + " " + *id, session.quiet || session.json);
      answer = api->call("POST", "/v1/sandboxes/" + *id + "/" + operation);
    }
    if (!answer) {
      session.print_error(answer.error());
      status = exit_status(answer.error().kind());
      continue;
    }
    done.push_back(*std::move(answer));
    if (!session.json && !session.quiet) printf("%s\n", id->c_str());
  }
  if (session.json) session.print_json(json::object{{"sandboxes", done}});
  return status;
}

}  // namespace

Result<int> cmd_pause(Session& session, const PauseOptions& options) {
  return for_each_sandbox(session, options.ids, "pause", "storing");
}

Result<int> cmd_resume(Session& session, const PauseOptions& options) {
  return for_each_sandbox(session, options.ids, "resume", "starting");
}

Result<int> cmd_rollback(Session& session, const RollbackOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string id, api->resolve(options.sandbox));
  std::optional<Waiting> waiting(std::in_place, "rolling back " + id, session.quiet || session.json);
  TRY_ASSIGN(const std::string text,
             api->call_text("POST", "/v1/sandboxes/" + id + "/rollback", json::object{{"snapshot", options.snapshot}}));
  waiting.reset();
  if (session.json)
    session.print_text(text);
  else if (!session.quiet)
    printf("%s\n", id.c_str());
  return 0;
}

Result<int> cmd_snapshot_create(Session& session, const SnapshotOptions& options) {
  json::object body{{"strict", !options.loose}};
  if (!options.name.empty()) body["name"] = options.name;
  if (!options.keep.empty()) {
    TRY_ASSIGN(body["keep_seconds"], parse_duration(options.keep));
  }
  TRY_ASSIGN(const auto labels, parse_pairs(options.labels, "label"));
  if (!labels.empty()) body["labels"] = object_of(labels);
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string id, api->resolve(options.sandbox));
  std::optional<Waiting> waiting(std::in_place, "keeping " + id, session.quiet || session.json);
  TRY_ASSIGN(const std::string text, api->call_text("POST", "/v1/sandboxes/" + id + "/snapshots", body));
  waiting.reset();
  if (session.json) {
    session.print_text(text);
    return 0;
  }
  TRY_ASSIGN(const json::value answer, parse_json(text));
  const json::value& t = answer.at("timing");
  session.note("paused " + format_ms(t.at("parent_pause_ms").to_number<double>()) + ", vCPUs stopped " +
               format_ms(t.at("vcpu_stop_ms").to_number<double>()) + "; stored in " +
               format_ms(t.at("store_ms").to_number<double>()) + ": " +
               std::to_string(answer.at("changed_pages").to_number<int64_t>() * 4) + " KiB of memory and " +
               std::to_string(answer.at("disk_chunks").to_number<int64_t>()) + " chunks of disk changed");
  printf("%s\n", text_of(answer.at("snapshot").as_object(), "id").c_str());
  return 0;
}

Result<int> cmd_snapshot_ls(Session& session) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string text, api->call_text("GET", "/v1/snapshots"));
  if (session.json) {
    session.print_text(text);
    return 0;
  }
  TRY_ASSIGN(const json::value answer, parse_json(text));
  const int64_t now = ::time(nullptr);
  Table table({{"SNAPSHOT"}, {"NAME"}, {"SANDBOX"}, {"TEMPLATE"}, {"AGE"}, {"KEPT"}, {"MEMORY", Align::kRight}});
  for (const json::value& value : answer.at("snapshots").as_array()) {
    const json::object& s = value.as_object();
    const std::string name = text_of(s, "name");
    table.add({text_of(s, "id"), name.empty() ? "-" : printable(name), text_of(s, "sandbox_id"), text_of(s, "template"),
               span_since(text_of(s, "created_at"), now), span_until(text_of(s, "expires_at"), now),
               std::to_string(s.at("memory_mib").to_number<int64_t>()) + " MiB"});
  }
  if (table.empty() && ::isatty(STDOUT_FILENO) == 1) session.note("no snapshots; `ramet snapshot create ID` makes one");
  printf("%s", table.render().c_str());
  return 0;
}

Result<int> cmd_snapshot_rm(Session& session, const SnapshotOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  json::array removed;
  int status = 0;
  for (const std::string& name : options.names) {  // one that fails does not save the others
    const Result<json::value> done = api->call("DELETE", "/v1/snapshots/" + percent_encode(name));
    if (!done) {
      session.print_error(done.error());
      status = exit_status(done.error().kind());
      continue;
    }
    removed.push_back(json::value(name));
    if (!session.json && !session.quiet) printf("%s\n", name.c_str());
  }
  if (session.json) session.print_json(json::object{{"removed", removed}});
  return status;
}

}  // namespace ramet::cli
