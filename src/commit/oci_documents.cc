#include "commit/oci_documents.h"

#include <boost/json.hpp>

#include "base/file.h"
#include "chunk/digest.h"

namespace ramet::commit {
namespace {

namespace json = boost::json;

constexpr std::string_view kArchitecture = "amd64", kSystem = "linux";

std::string name_of(const Digest& digest) { return "sha256:" + digest.to_hex(); }

json::object descriptor(std::string_view type, const Digest& digest, uint64_t bytes) {
  return {{"mediaType", type}, {"digest", name_of(digest)}, {"size", bytes}};
}

struct Blob {
  OciDocument document;
  json::object descriptor;
};
Blob blob(std::string_view type, const json::object& content) {
  std::string text = json::serialize(content);
  const Digest digest = chunk::sha256(as_bytes(text));
  json::object said = descriptor(type, digest, text.size());
  return {{std::string(kOciBlobs) + digest.to_hex(), std::move(text)}, std::move(said)};
}

// No history, no command, no time: a disk says nothing of them.
json::object config_of(const OciLayer& layer) {
  return {{"architecture", kArchitecture},
          {"os", kSystem},
          {"config", json::object()},
          {"rootfs", json::object{{"type", "layers"}, {"diff_ids", json::array{json::value(name_of(layer.digest))}}}}};
}

}  // namespace

OciDocuments oci_documents(const OciLayer& layer, std::string_view tag) {
  Blob config = blob("application/vnd.oci.image.config.v1+json", config_of(layer));
  constexpr std::string_view kManifest = "application/vnd.oci.image.manifest.v1+json";
  Blob manifest = blob(
      kManifest, {{"schemaVersion", 2},
                  {"mediaType", kManifest},
                  {"config", config.descriptor},
                  {"layers", json::array{descriptor("application/vnd.oci.image.layer.v1.tar", layer.digest, layer.bytes)}}});
  manifest.descriptor["platform"] = json::object{{"architecture", kArchitecture}, {"os", kSystem}};
  manifest.descriptor["annotations"] = json::object{{"org.opencontainers.image.ref.name", tag}};
  const json::object index{{"schemaVersion", 2}, {"manifests", json::array{manifest.descriptor}}};
  const json::object layout{{"imageLayoutVersion", "1.0.0"}};
  return {.layout = {"oci-layout", json::serialize(layout)},
          .index = {"index.json", json::serialize(index)},
          .manifest = std::move(manifest.document),
          .config = std::move(config.document)};
}

}  // namespace ramet::commit
