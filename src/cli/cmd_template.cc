#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "base/child_process.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/places.h"
#include "cli/template_steps.h"
#include "cli/template_upload.h"
#include "cli/text.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;

constexpr const char* kFiles[] = {"vmlinux", "initrd", "disk.img"};

// The server has a template of this name with the same files.
Result<bool> is_there_already(const ApiClient& api, const std::string& name, const json::object& manifest) {
  TRY_ASSIGN(const json::value answer, api.call("GET", "/v1/templates"));
  for (const json::value& t : answer.at("templates").as_array()) {
    if (t.at("name") != json::value(name)) continue;
    const bool same_words = t.at("cmdline") == (manifest.contains("cmdline") ? manifest.at("cmdline") : json::value("")) &&
                            t.at("vcpus") == manifest.at("vcpus") && t.at("memory_mib") == manifest.at("memory_mib");
    if (!same_words || t.at("files").as_object().empty()) return false;
    for (const char* file : kFiles)
      if (t.at("files").at(file).at("sha256") != manifest.at("files").at(file).at("sha256")) return false;
    return true;
  }
  return false;
}

Result<int> push(Session& session, const std::string& directory, const std::string& name_override) {
  TRY_ASSIGN(const std::string text, read_file(directory + "/template.json", 1 << 20));
  TRY_ASSIGN(json::value document, parse_json(text));
  if (!document.is_object() || !document.as_object().contains("files"))
    return fail(ErrorKind::kInvalid, directory + "/template.json is not a template's description");
  json::object& manifest = document.as_object();
  if (!name_override.empty()) manifest["name"] = name_override;
  const std::string name(manifest.at("name").as_string());
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const bool there, is_there_already(*api, name, manifest));
  if (there) {
    session.note("the server has template " + name + " already");
    if (session.json) session.print_json(json::object{{"name", name}, {"uploaded", false}});
    return 0;
  }
  for (const char* file : kFiles) {
    const uint64_t bytes = manifest.at("files").at(file).at("bytes").to_number<uint64_t>();
    Progress progress("upload " + name + "/" + file, bytes, session.quiet || session.json);
    TRY(upload_template_file(*api, name, file, directory + "/" + file, [&](uint64_t n) { progress.add(n); }));
    progress.done();
  }
  TRY_ASSIGN(const std::string committed, api->call_text("PUT", "/v1/templates/" + percent_encode(name), manifest));
  if (session.json)
    session.print_text(committed);
  else
    session.note("template " + name + " is ready; `ramet run " + name + "` makes a sandbox of it");
  return 0;
}

Result<BuildPlan> plan_of(const TemplateOptions& options) {
  BuildPlan plan;
  if (!options.file.empty()) {
    if (!options.steps.empty()) return fail(ErrorKind::kInvalid, "steps stand in the file or on the command line, not in both");
    TRY_ASSIGN(const std::string text, read_file(options.file, 1 << 20));
    TRY_ASSIGN(plan, parse_build_plan(text));
    const size_t slash = options.file.rfind('/');
    plan.directory = slash == std::string::npos ? "." : slash == 0 ? "/" : options.file.substr(0, slash);
  }
  for (const std::string& words : options.steps) {
    TRY_ASSIGN(BuildStep step, parse_step_words(words));
    plan.steps.push_back(std::move(step));
  }
  if (!options.from.empty()) {
    plan.from = options.from;
    plan.snapshot.clear();
  }
  if (options.vcpus) plan.vcpus = options.vcpus;
  if (!options.memory.empty()) {
    TRY_ASSIGN(plan.memory_mib, parse_mib(options.memory));
  }
  return plan;
}

Result<int> build_of_steps(Session& session, const TemplateOptions& options) {
  if (!options.directory.empty())
    return fail(ErrorKind::kInvalid, "--output is for templates of packages; one of steps is made on the server");
  TRY_ASSIGN(const BuildPlan plan, plan_of(options));
  TRY_ASSIGN(const json::value made,
             build_by_steps(session, options.name, plan, options.fresh ? BuildCache::kIgnore : BuildCache::kUse));
  if (session.json)
    session.print_json(made);
  else
    session.note("template " + options.name + " is ready; `ramet run " + options.name + "` makes a sandbox of it");
  return 0;
}

}  // namespace

Result<int> cmd_template_build(Session& session, const TemplateOptions& options) {
  if (!options.file.empty() || !options.steps.empty() || !options.from.empty()) return build_of_steps(session, options);
  TRY_ASSIGN(const std::string script, find_helper("templates/build"));
  TRY(session.api());  // before minutes of work: is there somebody to give it to
  const std::string directory = options.directory.empty() ? state_dir() + "/built/" + options.name : options.directory;
  TRY(make_directories(directory));
  SpawnOptions spawn;
  spawn.argv = {script, options.name, directory};
  if (options.fresh) spawn.argv.push_back("--fresh");
  if (session.json) spawn.stdout_fd = STDERR_FILENO;
  spawn.new_session = false;
  TRY_ASSIGN(ChildProcess build, ChildProcess::spawn(spawn));
  const std::optional<int> status = build.wait(Deadline::max());
  if (!status || !WIFEXITED(*status) || WEXITSTATUS(*status) != 0)
    return tl::unexpected(
        Error(ErrorKind::kIo, "building template `" + options.name + "` failed").with_hint("The lines above say why."));
  return push(session, directory, "");
}

Result<int> cmd_template_push(Session& session, const TemplateOptions& options) {
  return push(session, options.directory, options.name);
}

Result<int> cmd_template_ls(Session& session) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string text, api->call_text("GET", "/v1/templates"));
  if (session.json) {
    session.print_text(text);
    return 0;
  }
  TRY_ASSIGN(const json::value answer, parse_json(text));
  Table table({{"TEMPLATE"},
               {"KERNEL"},
               {"VCPUS", Align::kRight},
               {"MEMORY", Align::kRight},
               {"DISK", Align::kRight},
               {"STATUS"},
               {"AGE"}});
  const int64_t now = ::time(nullptr);
  for (const json::value& t : answer.at("templates").as_array()) {
    const std::optional<int64_t> at = parse_time(std::string(t.at("committed_at").as_string()));
    table.add({std::string(t.at("name").as_string()), printable(std::string(t.at("kernel_release").as_string())),
               std::to_string(t.at("vcpus").to_number<int64_t>()),
               std::to_string(t.at("memory_mib").to_number<int64_t>()) + " MiB",
               format_bytes(t.at("disk_bytes").to_number<uint64_t>()), std::string(t.at("status").as_string()),
               at ? format_span(now - *at) : "-"});
  }
  if (table.empty() && ::isatty(STDOUT_FILENO) == 1) session.note("no templates; `ramet template build base` makes one");
  printf("%s", table.render().c_str());
  return 0;
}

Result<int> cmd_template_rm(Session& session, const TemplateOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  json::array removed;
  for (const std::string& name : options.names) {
    TRY(api->call("DELETE", "/v1/templates/" + percent_encode(name)));
    removed.push_back(json::value(name));
  }
  if (session.json) session.print_json(json::object{{"removed", removed}});
  return 0;
}

}  // namespace ramet::cli
