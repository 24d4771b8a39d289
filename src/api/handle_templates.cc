#include <boost/json.hpp>

#include "api/encoded_body.h"
#include "api/handlers.h"
#include "api/render.h"
#include "api/requests.h"

namespace ramet::api {
namespace {

namespace json = boost::json;

Result<std::string> template_name(const Call& call) {
  std::string name(call.path["name"]);
  TRY(check_template_name(name));
  return name;
}

}  // namespace

Status list_templates(Call& call) {
  json::array list;
  for (const host::TemplateInfo& t : call.host().templates()) list.push_back(to_json(t));
  return call.exchange.respond(json_response(200, {{"templates", std::move(list)}}));
}

Status commit_template(Call& call) {
  TRY_ASSIGN(const std::string name, template_name(call));
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY(parse_json_object(body));  // depth and size are checked before the host reads it
  TRY_ASSIGN(const host::TemplateInfo info, call.host().commit_template(name, body));
  return call.exchange.respond(json_response(201, to_json(info)));
}

Status save_template(Call& call) {
  TRY_ASSIGN(const std::string name, template_name(call));
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const host::SaveTemplateOptions options, decode_save_template(body));
  TRY_ASSIGN(const host::TemplateInfo info, call.host().save_template(name, options));
  return call.exchange.respond(json_response(201, to_json(info)));
}

Status delete_template(Call& call) {
  TRY_ASSIGN(const std::string name, template_name(call));
  TRY(call.host().remove_template(name));
  return answer_nothing(call.exchange);
}

Status upload_template_file(Call& call) {
  TRY_ASSIGN(const std::string name, template_name(call));
  TRY_ASSIGN(const std::unique_ptr<host::TemplateFileWriter> writer,
             call.host().upload_template_file(name, std::string(call.path["file"])));
  TRY(read_encoded_body(call.exchange, [&](std::span<const std::byte> bytes) { return writer->write(bytes); }));
  TRY_ASSIGN(const host::TemplateFile file, writer->finish());
  return call.exchange.respond(json_response(200, {{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}}));
}

}  // namespace ramet::api
