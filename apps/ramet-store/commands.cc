#include "commands.h"

#include <cstdio>

#include "cli/text.h"
#include "commit/stored_manifest.h"
#include "open_store.h"

namespace ramet::store_tool {
namespace {

namespace json = boost::json;
using cli::format_bytes;

struct Content {
  uint64_t chunks = 0, blocks = 0;  // that are not all zero
};
Result<Content> content_of(image::Manifest& manifest, const chunk::Store& store) {
  Content content;
  for (uint64_t n = 0; n < manifest.chunks(); n++) {
    TRY_ASSIGN(const Digest name, manifest.chunk(n));
    if (name == image::kZeros) continue;
    TRY_ASSIGN(const chunk::Recipe recipe, store.index().recipe(name));
    content.chunks++;
    for (const chunk::Extent& e : recipe.extents) content.blocks += e.frame ? e.blocks : 0;
  }
  return content;
}

}  // namespace

Status list_images(const Place& place) {
  TRY_ASSIGN(const OpenStore o, open_store(place));
  TRY_ASSIGN(const std::vector<std::string> names, o.catalogue.names());
  json::array rows;
  cli::Table table({{"IMAGE"}, {"KIND"}, {"SIZE", cli::Align::kRight}});
  for (const std::string& name : names) {
    TRY_ASSIGN(const image::ManifestRoot root, o.catalogue.get(name));
    const uint64_t bytes = root.blocks * image::kBlockBytes;
    const char* const kind = root.kind == image::ImageKind::kDisk ? "disk" : "memory";
    rows.push_back({{"name", name}, {"kind", kind}, {"bytes", bytes}});
    table.add({name, kind, format_bytes(bytes)});
  }
  TRY_ASSIGN(const std::vector<std::string> unfinished, o.catalogue.unfinished_names());
  for (const std::string& name : unfinished) {
    TRY_ASSIGN(const commit::Unfinished import, o.catalogue.unfinished(name));
    const uint64_t bytes = import.root.blocks * image::kBlockBytes;
    rows.push_back({{"name", name}, {"kind", "unfinished"}, {"bytes", bytes}});
    table.add({name, "unfinished", format_bytes(bytes)});
  }
  if (place.json)
    print(rows);
  else
    std::fputs(table.render().c_str(), stdout);
  return {};
}

Status show_image(const Place& place, const std::string& name) {
  TRY_ASSIGN(OpenStore o, open_store(place));
  TRY_ASSIGN(image::ManifestRoot root, o.catalogue.get(name));
  image::Manifest manifest = commit::manifest_in(*o.store, std::move(root));
  TRY_ASSIGN(const Content content, content_of(manifest, *o.store));
  const uint64_t bytes = manifest.root().blocks * image::kBlockBytes, used = content.blocks * image::kBlockBytes;
  const size_t metadata = image::encode_manifest_root(manifest.root()).size();
  if (place.json)
    print({{"name", name},
           {"bytes", bytes},
           {"chunks", manifest.chunks()},
           {"nonzero_chunks", content.chunks},
           {"nonzero_bytes", used},
           {"manifest_bytes", metadata}});
  else
    std::printf("%s: %s, %s not zero\n%llu of %llu chunks have content; manifest %s\n", name.c_str(),
                format_bytes(bytes).c_str(), format_bytes(used).c_str(), static_cast<unsigned long long>(content.chunks),
                static_cast<unsigned long long>(manifest.chunks()), format_bytes(metadata).c_str());
  return {};
}

Status diff_images(const Place& place, const std::string& a, const std::string& b) {
  TRY_ASSIGN(OpenStore o, open_store(place));
  TRY_ASSIGN(image::ManifestRoot root_a, o.catalogue.get(a));
  TRY_ASSIGN(image::ManifestRoot root_b, o.catalogue.get(b));
  image::Manifest in_a = commit::manifest_in(*o.store, std::move(root_a)),
                  in_b = commit::manifest_in(*o.store, std::move(root_b));
  json::array rows;
  TRY(image::visit_differences(in_a, in_b, [&](uint64_t n, const Digest& x, const Digest& y) {
    rows.push_back(
        {{"chunk", n}, {"a", x == image::kZeros ? "zeros" : x.to_hex()}, {"b", y == image::kZeros ? "zeros" : y.to_hex()}});
  }));
  if (place.json) {
    print(rows);
    return {};
  }
  for (const json::value& row : rows)
    std::printf("chunk %llu  %.12s  %.12s\n", static_cast<unsigned long long>(row.at("chunk").as_uint64()),
                row.at("a").as_string().c_str(), row.at("b").as_string().c_str());
  std::printf("%zu of %llu chunks differ\n", rows.size(), static_cast<unsigned long long>(in_a.chunks()));
  return {};
}

Status remove_image(const Place& place, const std::string& name) {
  TRY_ASSIGN(OpenStore o, open_store(place));
  TRY(o.catalogue.remove(name));
  if (place.json) print({{"name", name}});
  return {};
}

}  // namespace ramet::store_tool
