// Images in and out.
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "cli/terminal.h"
#include "cli/text.h"
#include "commit/export.h"
#include "commit/import.h"
#include "open_store.h"

namespace ramet::store_tool {
namespace {

using cli::format_bytes;

// A renewing line on standard error for each step, from sums instead of parts.
class Steps {
 public:
  Steps(std::string what, bool quiet) : what_(std::move(what)), quiet_(quiet) {}
  void reach(const commit::Progress& p) {
    if (p.step != step_) {
      finish();
      step_ = p.step;
      done_ = 0;
      line_.emplace(step_ + " " + what_, p.total_bytes, quiet_);
    }
    if (p.done_bytes > done_) line_->add(p.done_bytes - done_);
    done_ = std::max(done_, p.done_bytes);
  }
  void finish() {
    if (line_) line_->done();
    line_.reset();
  }

 private:
  const std::string what_;
  const bool quiet_;
  std::string step_;
  std::optional<cli::Progress> line_;
  uint64_t done_ = 0;
};

}  // namespace

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
  Steps steps(import.name, place.quiet);
  TRY_ASSIGN(const image::ManifestRoot root,
             commit::import_image(request, *o.store, o.catalogue, [&](const commit::Progress& p) { steps.reach(p); }));
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
  Steps steps(name, place.quiet);
  TRY(commit::export_image(format, manifest, *o.store, path, [&](const commit::Progress& p) { steps.reach(p); }));
  steps.finish();
  if (place.json) print({{"name", name}, {"file", path}, {"bytes", manifest.root().blocks * image::kBlockBytes}});
  return {};
}

}  // namespace ramet::store_tool
