#include <boost/json.hpp>

#include "api/encoded_body.h"
#include "api/handlers.h"
#include "api/import_events.h"
#include "api/render.h"
#include "api/requests.h"
#include "host/images/images.h"

namespace ramet::api {
namespace {

namespace json = boost::json;

std::string image_name(const Call& call) { return std::string(call.path["name"]); }

// A client takes more than a few milliseconds for a whole chunk of 16 MiB.
constexpr size_t kPieceBytes = 1 << 20;

}  // namespace

Status list_images(Call& call) {
  TRY_ASSIGN(const std::vector<host::ImageInfo> images, call.host().images().list());
  json::array list;
  for (const host::ImageInfo& image : images) list.push_back(to_json(image));
  return call.exchange.respond(json_response(200, {{"images", std::move(list)}}));
}

Status get_image(Call& call) {
  TRY_ASSIGN(const host::ImageInfo image, call.host().images().get(image_name(call)));
  return call.exchange.respond(json_response(200, to_json(image)));
}

Status import_image(Call& call) {
  host::Images& images = call.host().images();
  const std::string name = image_name(call);
  TRY_ASSIGN(host::ImportOptions options, decode_import(call.target));
  TRY_ASSIGN(const bool events_wanted, call.target.flag("stream"));
  TRY_ASSIGN(const std::unique_ptr<host::ImageUpload> upload, images.upload(name));
  TRY(read_encoded_body(call.exchange, [&](std::span<const std::byte> bytes) { return upload->write(bytes); }));

  ImportEvents events(call.exchange, events_wanted ? ImportEvents::Wanted::kEvents : ImportEvents::Wanted::kAnswer);
  options.given_up = [&] { return call.exchange.nobody_waits(); };
  options.on_step = [&](std::string_view step, uint64_t done, uint64_t total) { events.step(step, done, total); };
  if (const auto done = upload->finish(options); !done) return events.end(tl::unexpected<Error>(done.error()));
  return events.end(images.get(name));
}

Status export_image(Call& call) {
  host::ExportOptions options;
  if (const std::string_view format = call.target.get("format"); !format.empty()) options.format = format;
  options.given_up = [&] { return call.exchange.nobody_waits(); };
  TRY_ASSIGN(const std::unique_ptr<host::ImageDownload> download, call.host().images().download(image_name(call), options));
  // The first piece before the head: an error of opening still gets its own status.
  TRY_ASSIGN(std::span<const std::byte> bytes, download->next());
  const std::string size = std::to_string(download->bytes());
  TRY(call.exchange.begin_stream({200, "application/octet-stream", "", {{"Ramet-Image-Bytes", size}}}));
  while (!bytes.empty()) {
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes)
      TRY(call.exchange.write(bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at))));
    TRY_ASSIGN(bytes, download->next());
  }
  return call.exchange.end_stream();
}

Status diff_images(Call& call) {
  const std::string other(call.target.get("with"));
  if (other.empty()) return fail(ErrorKind::kInvalid, "`with` names the image to compare with");
  TRY_ASSIGN(const host::ImageDiff diff, call.host().images().diff(image_name(call), other));
  return call.exchange.respond(json_response(200, to_json(diff)));
}

Status delete_image(Call& call) {
  TRY(call.host().images().remove(image_name(call)));
  return answer_nothing(call.exchange);
}

Status commit_disk(Call& call) {
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const std::string name, decode_commit(body));
  TRY_ASSIGN(const host::CommittedDisk disk, call.host().commit_disk(call.id(), name));
  return call.exchange.respond(json_response(201, to_json(disk)));
}

}  // namespace ramet::api
