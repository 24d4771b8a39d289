#include "cli/build_plan.h"

#include <boost/json.hpp>

#include "cli/api_client.h"
#include "cli/content_digest.h"
#include "cli/json_text.h"
#include "cli/text.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;
using Kind = BuildStep::Kind;

struct Word {
  const char* name;
  Kind kind;
};
constexpr Word kWords[] = {{"run", Kind::kRun},   {"copy", Kind::kCopy},       {"env", Kind::kEnv},
                           {"user", Kind::kUser}, {"workdir", Kind::kWorkdir}, {"start", Kind::kStart}};

const char* word_of(Kind kind) {
  for (const Word& w : kWords)
    if (w.kind == kind) return w.name;
  return "?";
}

tl::unexpected<Error> bad(const std::string& what) { return fail(ErrorKind::kInvalid, "build: " + what); }

Result<std::string> text_member(const json::object& o, std::string_view name) {
  const std::string text = text_of(o, name);
  if (!text.empty()) return text;
  return bad("`" + std::string(name) + "` must be a string that is not empty");
}

Result<uint64_t> number_member(const json::object& o, const char* name, uint64_t low, uint64_t high) {
  const json::value* v = o.if_contains(name);
  if (v != nullptr && v->is_int64() && v->get_int64() >= static_cast<int64_t>(low) &&
      v->get_int64() <= static_cast<int64_t>(high))
    return static_cast<uint64_t>(v->get_int64());
  return bad(std::string("`") + name + "` must be a number from " + std::to_string(low) + " to " + std::to_string(high));
}

Status only_known(const json::object& o, std::initializer_list<std::string_view> known, const std::string& where) {
  for (const json::key_value_pair& kv : o) {
    bool there = false;
    for (const std::string_view name : known) there = there || name == std::string_view(kv.key());
    if (!there) return bad("`" + printable(std::string(kv.key())) + "` is not known in " + where);
  }
  return {};
}

Result<BuildStep> parse_step(const json::value& value) {
  if (!value.is_object()) return bad("a step must be an object");
  const json::object& o = value.get_object();
  const Word* found = nullptr;
  for (const Word& w : kWords) {
    if (!o.contains(w.name)) continue;
    if (found != nullptr) return bad(std::string("a step has `") + found->name + "` and `" + w.name + "`; it is one of them");
    found = &w;
  }
  if (found == nullptr) return bad("a step must be one of run, copy, env, user, workdir, start");
  BuildStep step;
  step.kind = found->kind;
  if (step.kind == Kind::kEnv) {
    TRY(only_known(o, {"env"}, "an env step"));
    if (!o.at("env").is_object()) return bad("`env` must be an object of strings");
    for (const json::key_value_pair& kv : o.at("env").get_object()) {
      if (!kv.value().is_string()) return bad("`env` must be an object of strings");
      step.env[kv.key()] = kv.value().get_string();
    }
    return step;
  }
  TRY_ASSIGN(step.text, text_member(o, found->name));
  if (step.kind == Kind::kCopy) {
    TRY(only_known(o, {"copy", "to"}, "a copy step"));
    TRY_ASSIGN(step.to, text_member(o, "to"));
  } else if (step.kind == Kind::kStart) {
    TRY(only_known(o, {"start", "ready", "ready_seconds"}, "a start step"));
    if (o.contains("ready")) {
      TRY_ASSIGN(step.ready, text_member(o, "ready"));
    }
    if (o.contains("ready_seconds")) {
      TRY_ASSIGN(step.ready_seconds, number_member(o, "ready_seconds", 1, 86400));
    }
  } else {
    TRY(only_known(o, {found->name}, std::string("a ") + found->name + " step"));
  }
  return step;
}

}  // namespace

std::string title(const BuildStep& step) {
  std::string out = word_of(step.kind);
  if (!step.text.empty()) out += " " + step.text;
  if (!step.to.empty()) out += " " + step.to;
  for (const auto& [key, value] : step.env) out += " " + key + "=" + value;
  const size_t end = out.find('\n');
  return printable(end == std::string::npos ? out : out.substr(0, end) + " ...");
}

Result<BuildPlan> parse_build_plan(std::string_view text) {
  TRY_ASSIGN(const json::value document, parse_json(text));
  if (!document.is_object()) return bad("not a JSON object");
  const json::object& o = document.get_object();
  TRY(only_known(o, {"from", "snapshot", "vcpus", "memory_mib", "steps"}, "a build"));
  BuildPlan plan;
  if (o.contains("from") && o.contains("snapshot")) return bad("`from` and `snapshot` exclude each other");
  if (o.contains("from")) {
    TRY_ASSIGN(plan.from, text_member(o, "from"));
  }
  if (o.contains("snapshot")) {
    TRY_ASSIGN(plan.snapshot, text_member(o, "snapshot"));
  }
  if (o.contains("vcpus")) {
    TRY_ASSIGN(const uint64_t vcpus, number_member(o, "vcpus", 1, 16));
    plan.vcpus = static_cast<uint32_t>(vcpus);
  }
  if (o.contains("memory_mib")) {
    TRY_ASSIGN(plan.memory_mib, number_member(o, "memory_mib", 64, 1u << 20));
  }
  const json::value* steps = o.if_contains("steps");
  if (steps == nullptr || !steps->is_array()) return bad("`steps` must be an array");
  for (const json::value& one : steps->get_array()) {
    TRY_ASSIGN(BuildStep step, parse_step(one));
    plan.steps.push_back(std::move(step));
  }
  return plan;
}

Result<BuildStep> parse_step_words(std::string_view words) {
  const size_t space = words.find(' ');
  const std::string_view first = words.substr(0, space);
  const std::string rest(space == std::string_view::npos ? "" : words.substr(space + 1));
  BuildStep step;
  bool known = false;
  for (const Word& w : kWords)
    if (first == w.name) {
      step.kind = w.kind;
      known = true;
    }
  if (!known || rest.empty())
    return bad("step `" + printable(std::string(words)) +
               "` must begin with run, copy, env, user, workdir or start, and say what");
  if (step.kind == Kind::kEnv) {
    TRY_ASSIGN(step.env, parse_pairs({rest}, "variable"));
    return step;
  }
  step.text = rest;
  if (step.kind != Kind::kCopy) return step;
  const size_t last = rest.rfind(' ');
  if (last == std::string::npos || last == 0 || last + 1 == rest.size())
    return bad("step `" + printable(std::string(words)) + "` must say what is copied, and where to");
  step.text = rest.substr(0, last);
  step.to = rest.substr(last + 1);
  return step;
}

Status check_plan(const BuildPlan& plan) {
  bool started = false;
  for (const BuildStep& step : plan.steps) {
    if (started && step.changes_machine())
      return bad("nothing can follow `start` but env, user and workdir: `" + title(step) + "`");
    started = started || step.kind == Kind::kStart;
    if (step.kind == Kind::kWorkdir && !step.text.starts_with('/'))
      return bad("`workdir " + step.text + "` is no absolute path");
  }
  if (!plan.snapshot.empty() && (plan.vcpus || plan.memory_mib))
    return bad("a machine built from a snapshot is as large as that: no vCPUs or memory beside it");
  return {};
}

std::string source_of(const BuildPlan& plan, const BuildStep& step) {
  if (step.text.starts_with('/')) return step.text;
  const std::string path = plan.directory + "/" + step.text;
  return path.starts_with('/') || path.starts_with('.') ? path : "./" + path;
}

Result<std::vector<std::string>> step_keys(const BuildPlan& plan, const std::string& origin) {
  std::string key = sha256_hex("ramet build 1\n" + origin + "\n" + std::to_string(plan.vcpus.value_or(0)) + "\n" +
                               std::to_string(plan.memory_mib.value_or(0)));
  std::vector<std::string> keys;
  for (const BuildStep& step : plan.steps) {
    std::string content;
    if (step.kind == Kind::kCopy) {
      TRY_ASSIGN(content, content_digest(source_of(plan, step)));
    }
    const json::array words{key,        word_of(step.kind), step.text,           step.to,
                            step.ready, step.ready_seconds, object_of(step.env), content};
    key = sha256_hex(json::serialize(words));
    keys.push_back(key);
  }
  return keys;
}

}  // namespace ramet::cli
