// Images in and out.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/file.h"
#include "base/place.h"
#include "cli/steps.h"
#include "cli/text.h"
#include "cli/unpacked_directory.h"
#include "commit/export.h"
#include "commit/import.h"
#include "open_store.h"

namespace ramet::store_tool {
using cli::format_bytes;

Status import_image(const Place& place, const Import& import) {
  TRY(commit::check_image_name(import.name));
  commit::ImportRequest request{.path = import.file,
                                .name = import.name,
                                .parent = import.parent,
                                .tag = import.tag,
                                .disk_bytes = import.disk_mib << 20,
                                .work_directory = import.work_directory.empty() ? place.directory : import.work_directory};
  TRY_ASSIGN(request.format, commit::image_format(import.format));
  if (::access(import.file.c_str(), R_OK) < 0) return fail_errno(import.file);  // before a store is made for it
  TRY_ASSIGN(OpenStore o, open_store(place, Missing::kIsMade));
  TRY_ASSIGN(const chunk::Index::Totals before, o.store->totals());
  cli::Steps steps(import.name, place.quiet);
  TRY_ASSIGN(const image::ManifestRoot root,
             naming(place.directory, commit::import_image(request, *o.store, o.catalogue, [&](const commit::Progress& p) {
                      steps.reach(p.step, p.done_bytes, p.total_bytes);
                    })));
  steps.finish();
  TRY_ASSIGN(const chunk::Index::Totals after, o.store->totals());
  const uint64_t bytes = root.blocks * image::kBlockBytes, stored = after.pack_bytes - before.pack_bytes;
  if (place.json)
    print({{"name", import.name}, {"bytes", bytes}, {"stored_bytes", stored}});
  else
    std::printf("%s: %s, %s of them new in the store\n", import.name.c_str(), format_bytes(bytes).c_str(),
                format_bytes(stored).c_str());
  return {};
}

namespace {

// By way of a tar without a name in the store's directory.
Status export_directory(const Place& place, const commit::ExportRequest& request, image::Manifest& manifest,
                        const chunk::Store& store, const std::string& path) {
  TRY_ASSIGN(const UniqueFd tar, commit::export_unnamed(request, manifest, store, place.directory));
  uint64_t at = 0;
  const auto read = [&](std::span<std::byte> into) -> Result<size_t> {
    TRY_ASSIGN(const uint64_t bytes, file_size(tar.get()));
    const size_t n = std::min<uint64_t>(into.size(), bytes - at);
    TRY(pread_exact(tar.get(), into.first(n), at));
    at += n;
    return n;
  };
  TRY_ASSIGN(const cli::Unpacked unpacked, cli::unpack_tar(read, path));
  if (unpacked.devices)
    std::fprintf(stderr, "%llu device nodes were left out: only root can make them\n",
                 static_cast<unsigned long long>(unpacked.devices));
  if (unpacked.changed)
    std::fprintf(stderr, "%llu files could not be made as they are, the first: %s\n",
                 static_cast<unsigned long long>(unpacked.changed), unpacked.not_whole.c_str());
  return {};
}

}  // namespace

Status export_image(const Place& place, const std::string& name, const std::string& path, const std::string& format_name) {
  const bool is_directory = format_name == "dir" || (format_name == "oci" && path.ends_with("/"));
  TRY_ASSIGN(const commit::ExportFormat format, commit::export_format(format_name == "dir" ? "tar" : format_name));
  TRY_ASSIGN(const ReadStore o, open_to_read(place));
  TRY_ASSIGN(image::ManifestRoot root, o.catalogue.get(name));
  image::Manifest manifest = commit::manifest_in(*o.store, std::move(root));
  cli::Steps steps(name, place.quiet);
  const commit::ExportRequest request{.format = format, .name = name, .progress = [&](const commit::Progress& p) {
                                        steps.reach(p.step, p.done_bytes, p.total_bytes);
                                      }};
  if (is_directory)
    TRY(export_directory(place, request, manifest, *o.store, path));
  else
    TRY(commit::export_image(request, manifest, *o.store, path));
  steps.finish();
  if (place.json) print({{"name", name}, {"file", path}, {"bytes", manifest.root().blocks * image::kBlockBytes}});
  return {};
}

}  // namespace ramet::store_tool
