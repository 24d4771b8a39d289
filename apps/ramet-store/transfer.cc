// Images in and out.
#include <unistd.h>

#include <cstdio>

#include "cli/steps.h"
#include "cli/text.h"
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
             commit::import_image(request, *o.store, o.catalogue,
                                  [&](const commit::Progress& p) { steps.reach(p.step, p.done_bytes, p.total_bytes); }));
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

Status export_image(const Place& place, const std::string& name, const std::string& path, const std::string& format_name) {
  TRY_ASSIGN(const commit::ExportFormat format, commit::export_format(format_name));
  TRY_ASSIGN(OpenStore o, open_store(place));
  TRY_ASSIGN(image::ManifestRoot root, o.catalogue.get(name));
  image::Manifest manifest = commit::manifest_in(*o.store, std::move(root));
  cli::Steps steps(name, place.quiet);
  TRY(commit::export_image(format, manifest, *o.store, path,
                           [&](const commit::Progress& p) { steps.reach(p.step, p.done_bytes, p.total_bytes); }));
  steps.finish();
  if (place.json) print({{"name", name}, {"file", path}, {"bytes", manifest.root().blocks * image::kBlockBytes}});
  return {};
}

}  // namespace ramet::store_tool
