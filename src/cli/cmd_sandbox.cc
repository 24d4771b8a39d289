#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/json_text.h"
#include "cli/places.h"
#include "cli/text.h"
#include "cli/tree_view.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;

std::string labels_text(const json::object& sandbox) {
  std::string out;
  for (const json::key_value_pair& pair : sandbox.at("labels").as_object())
    out += (out.empty() ? "" : ",") + printable(std::string(pair.key()) + "=" + std::string(pair.value().as_string()));
  return out;
}

Result<json::object> create_body(const RunOptions& options) {
  json::object body;
  if (options.snapshot.empty())
    body["template"] = options.template_name;
  else
    body["snapshot"] = options.snapshot;
  if (options.vcpus) body["vcpus"] = *options.vcpus;
  if (!options.memory.empty()) {
    TRY_ASSIGN(body["memory_mib"], parse_mib(options.memory));
  }
  if (!options.ttl.empty()) {
    TRY_ASSIGN(body["ttl_seconds"], parse_duration(options.ttl));
  }
  if (!options.idle.empty()) {
    TRY_ASSIGN(body["idle_seconds"], parse_duration(options.idle));
  }
  TRY_ASSIGN(const auto env, parse_pairs(options.env, "variable"));
  TRY_ASSIGN(auto labels, parse_pairs(options.labels, "label"));
  if (!options.name.empty()) labels["name"] = options.name;
  if (!env.empty()) body["env"] = object_of(env);
  if (!labels.empty()) body["labels"] = object_of(labels);
  return body;
}

std::string size_text(const json::object& sandbox) {
  return std::to_string(sandbox.at("vcpus").to_number<int64_t>()) + " vCPU, " +
         std::to_string(sandbox.at("memory_mib").to_number<int64_t>()) + " MiB";
}

void print_children(const json::object& result) {
  Table table({{"SANDBOX"}, {"READY", Align::kRight}});
  const json::array& ready = result.at("timing").at("ready_ms").as_array();
  size_t i = 0;
  for (const json::value& child : result.at("children").as_array()) {
    table.add({text_of(child.as_object(), "id"), i < ready.size() ? format_ms(ready[i].to_number<double>()) : "-"});
    i++;
  }
  if (!table.empty()) printf("%s", table.render().c_str());
}

}  // namespace

Result<int> cmd_run(Session& session, const RunOptions& options) {
  TRY_ASSIGN(const json::object body, create_body(options));
  TRY_ASSIGN(const ApiClient* api, session.api());
  std::optional<Waiting> waiting(
      std::in_place,
      options.snapshot.empty() ? "making a sandbox from " + options.template_name + "; the first one of a template takes longer"
                               : "making a sandbox from snapshot " + options.snapshot,
      session.quiet || session.json);
  TRY_ASSIGN(const std::string text, api->call_text("POST", "/v1/sandboxes", body));
  waiting.reset();
  TRY_ASSIGN(const json::value answer, parse_json(text));
  const json::object& sandbox = answer.as_object();
  const std::string id = text_of(sandbox, "id");
  const bool has_command = !options.exec.command.empty() || options.exec.terminal;
  if (!has_command) {
    if (session.json) {
      session.print_text(text);
    } else {
      const double ms = sandbox.at("timing").at("total_ms").to_number<double>();
      if (::isatty(STDERR_FILENO) == 1)
        session.note("made from " + (options.snapshot.empty() ? options.template_name : "snapshot " + options.snapshot) + " (" +
                     size_text(sandbox) + ") in " + format_ms(ms));
      printf("%s\n", id.c_str());
    }
    return 0;
  }
  if (!options.remove) session.note("sandbox " + id);
  const Result<int> status = exec_in(session, id, options.exec);
  if (options.remove) {
    const Result<json::value> removed = api->call("DELETE", "/v1/sandboxes/" + id);
    if (!removed && removed.error().kind() != ErrorKind::kNotFound) session.print_error(removed.error());
  }
  return status;
}

Result<int> cmd_ls(Session& session, const ListOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  const std::string query = options.label.empty() ? "" : "?label=" + percent_encode(options.label);
  TRY_ASSIGN(const std::string text, api->call_text("GET", "/v1/sandboxes" + query));
  if (session.json) {
    session.print_text(text);
    return 0;
  }
  TRY_ASSIGN(const json::value answer, parse_json(text));
  const int64_t now = ::time(nullptr);
  Table table({{"SANDBOX"}, {"TEMPLATE"}, {"STATE"}, {"AGE"}, {"TTL"}, {"DEPTH", Align::kRight}, {"PARENT"}, {"LABELS"}});
  for (const json::value& value : answer.at("sandboxes").as_array()) {
    const json::object& s = value.as_object();
    table.add({text_of(s, "id"), text_of(s, "template"), text_of(s, "state"), span_since(text_of(s, "created_at"), now),
               span_until(text_of(s, "expires_at"), now), std::to_string(s.at("depth").to_number<int64_t>()),
               text_of(s, "parent_id").empty() ? "-" : text_of(s, "parent_id"), labels_text(s)});
  }
  if (table.empty() && ::isatty(STDOUT_FILENO) == 1) session.note("no sandboxes; `ramet run base` makes one");
  printf("%s", table.render().c_str());
  return 0;
}

Result<int> cmd_fork(Session& session, const ForkOptions& options) {
  json::object body{{"n", options.count}, {"mode", options.partial ? "partial" : "all"}, {"strict", !options.loose}};
  if (!options.ttl.empty()) {
    TRY_ASSIGN(body["ttl_seconds"], parse_duration(options.ttl));
  }
  TRY_ASSIGN(const auto labels, parse_pairs(options.labels, "label"));
  if (!labels.empty()) body["labels"] = object_of(labels);
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string id, api->resolve(options.id));
  std::optional<Waiting> waiting(std::in_place, "forking " + id, session.quiet || session.json);
  TRY_ASSIGN(const std::string text, api->call_text("POST", "/v1/sandboxes/" + id + "/fork", body));
  waiting.reset();
  TRY_ASSIGN(const json::value answer, parse_json(text));
  const json::object& result = answer.as_object();
  const json::array& failed = result.at("failed").as_array();
  if (session.json) {
    session.print_text(text);
  } else {
    const json::value& t = result.at("timing");
    session.note("fork " + format_ms(t.at("fork_ms").to_number<double>()) + ", parent paused " +
                 format_ms(t.at("parent_pause_ms").to_number<double>()) + ", vCPUs stopped " +
                 format_ms(t.at("vcpu_stop_ms").to_number<double>()));
    print_children(result);
    for (const json::value& f : failed) session.print_error(error_of_object(f.at("error")));
  }
  return failed.empty() ? 0 : 1;
}

Result<int> cmd_tree(Session& session) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string text, api->call_text("GET", "/v1/tree"));
  if (session.json) {
    session.print_text(text);
    return 0;
  }
  TRY_ASSIGN(const json::value answer, parse_json(text));
  printf("%s", render_tree(answer.as_object(), ::time(nullptr), {is_utf8_locale(), session.colours_out()}).c_str());
  return 0;
}

Result<int> cmd_kill(Session& session, const KillOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const json::value answer, api->call("GET", "/v1/sandboxes"));
  const json::array& sandboxes = answer.at("sandboxes").as_array();
  std::vector<std::string> ids;
  if (options.all)
    for (const json::value& s : sandboxes) ids.push_back(text_of(s.as_object(), "id"));
  for (const std::string& reference : options.ids) {
    TRY_ASSIGN(std::string id, resolve_in(sandboxes, reference));
    ids.push_back(std::move(id));
  }
  json::array killed;
  int status = 0;
  for (const std::string& id : ids) {  // one that fails does not save the others
    const Result<json::value> done = api->call("DELETE", "/v1/sandboxes/" + id);
    if (!done) {
      session.print_error(done.error());
      status = exit_status(done.error().kind());
      continue;
    }
    killed.push_back(json::value(id));
    if (!session.json && !session.quiet) printf("%s\n", id.c_str());
  }
  if (session.json) session.print_json(json::object{{"killed", killed}});
  return status;
}

Result<int> cmd_logs(Session& session, const LogsOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string id, api->resolve(options.id));
  const std::string target = "/v1/sandboxes/" + id + "/logs";
  if (session.json && !options.follow) {
    TRY_ASSIGN(const std::string text, api->call_text("GET", target));
    session.print_json(json::object{{"id", id}, {"console", text}});
    return 0;
  }
  TRY_ASSIGN(const std::unique_ptr<HttpStream> stream, api->open_stream("GET", target + (options.follow ? "?follow=1" : "")));
  std::vector<std::byte> piece(64 * 1024);
  while (true) {
    TRY_ASSIGN(const size_t n, stream->read_some(piece));
    if (n == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(piece.data()), n);
    // What a guest prints must not drive the user's terminal.
    const std::string shown = ::isatty(STDOUT_FILENO) == 1 ? printable(text, Lines::kKeep) : std::string(text);
    fwrite(shown.data(), 1, shown.size(), stdout);
    fflush(stdout);
  }
}

}  // namespace ramet::cli
