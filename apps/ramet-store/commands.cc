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

struct Row {
  std::string name;
  const char* kind;
  uint64_t bytes;
};
Status add_snapshots(const commit::SnapshotCatalogue& snapshots, std::vector<Row>& rows) {
  TRY_ASSIGN(const std::vector<std::string> ids, snapshots.ids());
  for (const std::string& id : ids) {
    TRY_ASSIGN(const commit::SnapshotRecord record, snapshots.get(id));
    uint64_t blocks = 0;
    for (const image::ManifestRoot* root : commit::roots_of(record)) blocks += root->blocks;
    rows.push_back({id, "snapshot", blocks * image::kBlockBytes});
  }
  return {};
}

Result<std::vector<Row>> rows_of(const ReadStore& o) {
  const commit::Catalogue& catalogue = o.catalogue;
  std::vector<Row> rows;
  TRY_ASSIGN(const std::vector<std::string> names, catalogue.names());
  for (const std::string& name : names) {
    TRY_ASSIGN(const image::ManifestRoot root, catalogue.get(name));
    rows.push_back({name, root.kind == image::ImageKind::kDisk ? "disk" : "memory", root.blocks * image::kBlockBytes});
  }
  TRY_ASSIGN(const std::vector<std::string> unfinished, catalogue.unfinished_names());
  for (const std::string& name : unfinished) {
    TRY_ASSIGN(const commit::Unfinished import, catalogue.unfinished(name));
    rows.push_back({name, "unfinished", import.root.blocks * image::kBlockBytes});
  }
  if (o.snapshots) TRY(add_snapshots(*o.snapshots, rows));
  return rows;
}

struct Shown {
  image::ManifestRoot root;
  Content content;
};
Result<Shown> shown(const ReadStore& o, const std::string& name) {
  TRY_ASSIGN(image::ManifestRoot root, o.catalogue.get(name));
  image::Manifest manifest = commit::manifest_in(*o.store, std::move(root));
  TRY_ASSIGN(const Content content, content_of(manifest, *o.store));
  return Shown{manifest.root(), content};
}

struct Differences {
  uint64_t chunks = 0;  // of each image
  json::array rows;
};
Result<Differences> differences(const ReadStore& o, const std::string& a, const std::string& b) {
  TRY_ASSIGN(image::ManifestRoot root_a, o.catalogue.get(a));
  TRY_ASSIGN(image::ManifestRoot root_b, o.catalogue.get(b));
  image::Manifest in_a = commit::manifest_in(*o.store, std::move(root_a)),
                  in_b = commit::manifest_in(*o.store, std::move(root_b));
  Differences out{in_a.chunks(), {}};
  const auto name = [](const Digest& digest) { return digest == image::kZeros ? "zeros" : digest.to_hex(); };
  TRY(image::visit_differences(in_a, in_b, [&](uint64_t n, const Digest& x, const Digest& y) {
    out.rows.push_back({{"chunk", n}, {"a", name(x)}, {"b", name(y)}});
  }));
  return out;
}

}  // namespace

Status list_images(const Place& place) {
  TRY_ASSIGN(const ReadStore o, open_to_read(place));
  TRY_ASSIGN(const std::vector<Row> rows, beside_others([&] { return rows_of(o); }));
  json::array out;
  cli::Table table({{"IMAGE"}, {"KIND"}, {"SIZE", cli::Align::kRight}});
  for (const Row& row : rows) {
    out.push_back({{"name", row.name}, {"kind", row.kind}, {"bytes", row.bytes}});
    table.add({row.name, row.kind, format_bytes(row.bytes)});
  }
  if (place.json)
    print(out);
  else
    std::fputs(table.render().c_str(), stdout);
  return {};
}

Status show_image(const Place& place, const std::string& name) {
  TRY_ASSIGN(const ReadStore o, open_to_read(place));
  TRY_ASSIGN(const Shown image, beside_others([&] { return shown(o, name); }));
  const uint64_t bytes = image.root.blocks * image::kBlockBytes, used = image.content.blocks * image::kBlockBytes;
  const uint64_t chunks = image::chunks_of(image.root.kind, image.root.blocks);
  const size_t metadata = image::encode_manifest_root(image.root).size();
  if (place.json)
    print({{"name", name},
           {"bytes", bytes},
           {"chunks", chunks},
           {"nonzero_chunks", image.content.chunks},
           {"nonzero_bytes", used},
           {"manifest_bytes", metadata}});
  else
    std::printf("%s: %s, %s not zero\n%llu of %llu chunks have content; manifest %s\n", name.c_str(),
                format_bytes(bytes).c_str(), format_bytes(used).c_str(), static_cast<unsigned long long>(image.content.chunks),
                static_cast<unsigned long long>(chunks), format_bytes(metadata).c_str());
  return {};
}

Status diff_images(const Place& place, const std::string& a, const std::string& b) {
  TRY_ASSIGN(const ReadStore o, open_to_read(place));
  TRY_ASSIGN(const Differences found, beside_others([&] { return differences(o, a, b); }));
  if (place.json) {
    print(found.rows);
    return {};
  }
  for (const json::value& row : found.rows)
    std::printf("chunk %llu  %.12s  %.12s\n", static_cast<unsigned long long>(row.at("chunk").as_uint64()),
                row.at("a").as_string().c_str(), row.at("b").as_string().c_str());
  std::printf("%zu of %llu chunks differ\n", found.rows.size(), static_cast<unsigned long long>(found.chunks));
  return {};
}

Status remove_image(const Place& place, const std::string& name) {
  TRY_ASSIGN(OpenStore o, open_store(place));
  TRY(o.catalogue.remove(name));
  if (place.json) print({{"name", name}});
  return {};
}

}  // namespace ramet::store_tool
