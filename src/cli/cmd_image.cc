#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/event_lines.h"
#include "cli/steps.h"
#include "cli/template_upload.h"
#include "cli/text.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;

std::string target_of(const std::string& name) { return "/v1/images/" + percent_encode(name); }

uint64_t number(const json::value& object, const char* field) { return object.at(field).to_number<uint64_t>(); }

std::string words_for(const json::value& image) {
  return std::string(image.at("name").as_string()) + ": " + format_bytes(number(image, "bytes")) + ", " +
         format_bytes(number(image, "stored_bytes")) + " in the store, " + format_bytes(number(image, "unique_bytes")) +
         " of them its own";
}

struct Source {
  uint64_t bytes = 0;  // 0: not known
  std::string format;  // empty: the server finds out
};
// A directory goes as a tar: what is in it, it says itself.
Result<Source> source_of(const ImageOptions& options) {
  std::error_code error;
  if (!std::filesystem::is_directory(options.file, error)) {
    if (options.format == "dir") return fail(ErrorKind::kInvalid, options.file + " is no directory");
    TRY_ASSIGN(const UniqueFd file, open_file(options.file, O_RDONLY));
    TRY_ASSIGN(const uint64_t bytes, file_size(file.get()));
    return Source{bytes, options.format};
  }
  if (!options.format.empty() && options.format != "dir" && options.format != "oci")
    return fail(ErrorKind::kInvalid,
                options.file + " is a directory, which is imported as dir or oci, not as " + options.format);
  const bool layout = std::filesystem::exists(options.file + "/oci-layout", error);
  return Source{0, options.format == "oci" || (options.format.empty() && layout) ? "oci" : "tar"};
}

std::string import_target(const ImageOptions& options, const std::string& format) {
  std::string target = target_of(options.name) + "?stream=1";
  const std::pair<const char*, std::string> more[] = {{"format", format},
                                                      {"parent", options.parent},
                                                      {"tag", options.tag},
                                                      {"disk_mib", options.disk_mib ? std::to_string(options.disk_mib) : ""}};
  for (const auto& [name, value] : more)
    if (!value.empty()) target += std::string("&") + name + "=" + percent_encode(value);
  return target;
}

// The image, or what went wrong; events about the steps before that, if it takes long.
Result<json::value> read_import(HttpStream& stream, Progress& sent, Steps& steps) {
  (void)stream.finish_body();  // a server that refused has closed its side already; its answer says why
  TRY_ASSIGN(const HttpReply head, stream.read_head());
  if (head.status < 300) sent.done();
  if (head.content_type != "application/x-ndjson") return ApiClient::read_answer(stream, head);
  json::value image;
  TRY(read_events(stream, [&](const json::object& event) -> Result<Events> {
    const json::string& type = event.at("type").as_string();
    if (type == "error") return tl::unexpected(error_of_object(event.at("error")));
    if (type == "image") image = event.at("image");
    if (type == "progress")
      steps.reach(std::string(event.at("step").as_string()), event.at("done_bytes").to_number<uint64_t>(),
                  event.at("total_bytes").to_number<uint64_t>());
    return type == "image" ? Events::kAreOver : Events::kGoOn;
  }));
  steps.finish();
  return image;
}

}  // namespace

Result<int> cmd_image_import(Session& session, const ImageOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const Source source, source_of(options));
  const bool quiet = session.quiet || session.json;
  Progress sent("send " + options.name, source.bytes, quiet);
  Steps steps(options.name, quiet);
  TRY_ASSIGN(const json::value image,
             upload(*api, {.method = "POST",
                           .target = import_target(options, source.format),
                           .path = options.file,
                           .progress = [&](uint64_t n) { sent.add(n); },
                           .read_answer = [&](HttpStream& s) { return read_import(s, sent, steps); }}));
  if (session.json)
    session.print_json(image);
  else
    printf("%s\n", words_for(image).c_str());
  return 0;
}

Result<int> cmd_image_commit(Session& session, const ImageOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string id, api->resolve(options.sandbox));
  json::value disk;
  {
    const Waiting waiting("storing the disk of " + id, session.quiet || session.json);
    TRY_ASSIGN(disk, api->call("POST", "/v1/sandboxes/" + percent_encode(id) + "/image", json::object{{"name", options.name}}));
  }
  if (session.json) {
    session.print_json(disk);
    return 0;
  }
  printf("%s\n", words_for(disk.at("image")).c_str());
  if (const json::value* reason = disk.as_object().if_contains("reason"))
    session.note("the file system is as after a loss of power: " + printable(std::string(reason->as_string())));
  return 0;
}

Result<int> cmd_image_ls(Session& session) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string text, api->call_text("GET", "/v1/images"));
  if (session.json) {
    session.print_text(text);
    return 0;
  }
  TRY_ASSIGN(const json::value answer, parse_json(text));
  Table table({{"IMAGE"}, {"SIZE", Align::kRight}, {"STORED", Align::kRight}, {"OWN", Align::kRight}});
  for (const json::value& image : answer.at("images").as_array())
    table.add({std::string(image.at("name").as_string()), format_bytes(number(image, "bytes")),
               format_bytes(number(image, "stored_bytes")), format_bytes(number(image, "unique_bytes"))});
  if (table.empty() && ::isatty(STDOUT_FILENO) == 1) session.note("no images; `ramet image import FILE NAME` makes one");
  printf("%s", table.render().c_str());
  return 0;
}

Result<int> cmd_image_rm(Session& session, const ImageOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  json::array removed;
  for (const std::string& name : options.names) {
    TRY(api->call("DELETE", target_of(name)));
    removed.push_back(json::value(name));
  }
  if (session.json) session.print_json(json::object{{"removed", removed}});
  return 0;
}

Result<int> cmd_image_diff(Session& session, const ImageOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string text,
             api->call_text("GET", target_of(options.name) + "/diff?with=" + percent_encode(options.other)));
  if (session.json) {
    session.print_text(text);
    return 0;
  }
  TRY_ASSIGN(const json::value diff, parse_json(text));
  for (const json::value& range : diff.at("ranges").as_array())
    printf("%llu %llu\n", static_cast<unsigned long long>(number(range, "offset")),
           static_cast<unsigned long long>(number(range, "length")));
  if (diff.at("truncated").as_bool()) session.note("there are more ranges than these");
  session.note(format_bytes(number(diff, "changed_bytes")) + " differ");
  return 0;
}

}  // namespace ramet::cli
