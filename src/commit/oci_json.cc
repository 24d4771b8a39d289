#include "commit/oci_json.h"

#include <algorithm>
#include <boost/json.hpp>

#include "commit/file_tree.h"

namespace ramet::commit {
namespace {

namespace json = boost::json;
using Kind = OciDescriptor::Kind;

constexpr std::string_view kPlatform = "linux/amd64", kSha256 = "sha256:";
constexpr std::string_view kManifestTypes[] = {"application/vnd.oci.image.manifest.v1+json",
                                               "application/vnd.docker.distribution.manifest.v2+json"};
constexpr std::string_view kIndexTypes[] = {"application/vnd.oci.image.index.v1+json",
                                            "application/vnd.docker.distribution.manifest.list.v2+json"};
constexpr std::string_view kLayerTypes[] = {
    "application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd", "application/vnd.docker.image.rootfs.diff.tar.gzip"};

tl::unexpected<Error> corrupt(const std::string& what) { return fail(ErrorKind::kCorrupt, "OCI image: " + what); }

std::string text(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  const json::string* string = value ? value->if_string() : nullptr;
  return string ? std::string(*string) : std::string();
}
const json::object* child(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value ? value->if_object() : nullptr;
}

Result<json::array> list_in(std::string_view document, std::string_view key) {
  if (document.size() > kMaxOciJsonBytes)
    return fail(ErrorKind::kInvalid, "OCI image: a document of " + std::to_string(document.size()) + " bytes, the limit is " +
                                         std::to_string(kMaxOciJsonBytes));
  boost::system::error_code error;
  const json::value parsed = json::parse(document, error);
  if (error) return corrupt("not JSON: " + error.message());
  const json::object* object = parsed.if_object();
  const json::value* list = object ? object->if_contains(key) : nullptr;
  if (!list || !list->is_array()) return corrupt("a document without a list '" + std::string(key) + "'");
  if (list->get_array().size() > kMaxOciDescriptors)
    return fail(ErrorKind::kInvalid, "OCI image: a list of " + std::to_string(list->get_array().size()) + ", the limit is " +
                                         std::to_string(kMaxOciDescriptors));
  return list->get_array();
}

std::optional<Kind> kind_of(std::string_view media_type) {
  const auto is_one_of = [&](const auto& types) { return std::ranges::find(types, media_type) != std::end(types); };
  if (is_one_of(kManifestTypes)) return Kind::kManifest;
  if (is_one_of(kIndexTypes)) return Kind::kIndex;
  if (is_one_of(kLayerTypes)) return Kind::kLayer;
  return std::nullopt;
}

Result<OciDescriptor> descriptor_of(const json::object& object, Kind kind) {
  OciDescriptor out{.kind = kind};
  const std::string digest = text(object, "digest");
  const std::optional<Digest> parsed =
      digest.starts_with(kSha256) ? Digest::from_hex(digest.substr(kSha256.size())) : std::nullopt;
  if (!parsed) return fail(ErrorKind::kUnsupported, "OCI image: the digest '" + shown(digest) + "'; sha256 is known");
  out.digest = *parsed;
  const json::value* size = object.if_contains("size");
  if (!size || !size->is_int64() || size->get_int64() < 0) return corrupt("a descriptor without a size");
  out.bytes = static_cast<uint64_t>(size->get_int64());
  if (const json::object* notes = child(object, "annotations")) out.tag = text(*notes, "org.opencontainers.image.ref.name");
  if (const json::object* platform = child(object, "platform"))
    out.platform = text(*platform, "os") + "/" + text(*platform, "architecture");
  return out;
}

std::string tags_of(const std::vector<OciDescriptor>& images) {
  std::string out;
  for (const OciDescriptor& image : images) out += (out.empty() ? "" : ", ") + ("'" + shown(image.tag) + "'");
  return out.empty() ? "none" : out;
}

}  // namespace

Result<std::vector<OciDescriptor>> decode_oci_index(std::string_view document) {
  TRY_ASSIGN(const json::array list, list_in(document, "manifests"));
  std::vector<OciDescriptor> out;
  for (const json::value& entry : list) {
    const json::object* object = entry.if_object();
    if (!object) return corrupt("a descriptor that is no object");
    const std::optional<Kind> kind = kind_of(text(*object, "mediaType"));
    if (!kind || *kind == Kind::kLayer) continue;
    TRY_ASSIGN(OciDescriptor descriptor, descriptor_of(*object, *kind));
    out.push_back(std::move(descriptor));
  }
  return out;
}

Result<OciDescriptor> choose_oci_image(const std::vector<OciDescriptor>& images, std::string_view tag) {
  std::vector<OciDescriptor> fitting;
  std::ranges::copy_if(images, std::back_inserter(fitting), [&](const OciDescriptor& image) {
    return (tag.empty() || image.tag == tag) && (image.platform.empty() || image.platform == kPlatform);
  });
  if (fitting.size() == 1) return fitting[0];
  const std::string asked = tag.empty() ? "" : " with the tag '" + shown(tag) + "'";
  if (fitting.empty())
    return fail(ErrorKind::kNotFound,
                "OCI image: nothing for " + std::string(kPlatform) + asked + "; tags there: " + tags_of(images));
  return fail(ErrorKind::kInvalid,
              "OCI image: " + std::to_string(fitting.size()) + " images" + asked + "; tags there: " + tags_of(fitting));
}

Result<std::vector<OciDescriptor>> decode_oci_manifest(std::string_view document) {
  TRY_ASSIGN(const json::array list, list_in(document, "layers"));
  std::vector<OciDescriptor> out;
  for (const json::value& entry : list) {
    const json::object* object = entry.if_object();
    if (!object) return corrupt("a layer that is no object");
    const std::string type = text(*object, "mediaType");
    if (kind_of(type) != Kind::kLayer)
      return fail(ErrorKind::kUnsupported,
                  "OCI image: a layer of type '" + shown(type) + "'; tar, plain or by gzip or zstd, is known");
    TRY_ASSIGN(OciDescriptor layer, descriptor_of(*object, Kind::kLayer));
    out.push_back(std::move(layer));
  }
  return out;
}

}  // namespace ramet::commit
