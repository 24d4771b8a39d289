#include "commit/import.h"

#include <optional>

#include "commit/disk_form.h"
#include "commit/live_chunks.h"
#include "commit/raw_image.h"

namespace ramet::commit {
namespace {

struct Part {
  image::Manifest manifest;
  uint64_t next_chunk = 0;
};

Result<bool> has_all(const chunk::Store& store, const image::ManifestRoot& root) {
  bool all = true;
  const Status done = visit_needed(store, root, [&](Needed, const Digest& digest) -> Status {
    TRY_ASSIGN(const bool there, store.has(digest));
    all &= there;
    return {};
  });
  if (!done && done.error().kind() != ErrorKind::kNotFound) return tl::unexpected<Error>(done.error());
  return done && all;
}

// Where an import of the same disk stopped, if all that it stored is still there; else the beginning.
Result<Part> begin(const DiskForm& disk, std::string_view name, const chunk::Store& store, const Catalogue& catalogue) {
  TRY_ASSIGN(image::Manifest empty, empty_manifest_for(disk.file.get()));
  Result<Unfinished> before = catalogue.unfinished(name);
  if (!before || before->source != disk.source || before->root.blocks != empty.root().blocks) return Part{std::move(empty)};
  TRY_ASSIGN(const bool whole, has_all(store, before->root));
  if (!whole) return Part{std::move(empty)};
  return Part{manifest_in(store, std::move(before->root)), before->next_chunk};
}

Result<image::ManifestRoot> store_in_steps(const ImportRequest& request, const DiskForm& disk, chunk::Store& store,
                                           Catalogue& catalogue, const OnProgress& progress) {
  std::optional<image::Manifest> parent;
  if (!request.parent.empty()) {
    TRY_ASSIGN(image::ManifestRoot root, catalogue.get(request.parent));
    parent = manifest_in(store, std::move(root));
  }
  TRY_ASSIGN(Part part, begin(disk, request.name, store, catalogue));
  for (;;) {
    chunk::Batch batch = store.begin();
    const RawPart step{disk.file.get(), part.next_chunk, request.step_bytes};
    TRY_ASSIGN(part.next_chunk, import_raw_part(step, batch, part.manifest, parent ? &*parent : nullptr, progress));
    TRY(seal_into(batch, part.manifest));
    TRY(batch.commit());
    // Written down while the batch still holds what it stored.
    if (part.next_chunk == part.manifest.chunks()) {
      TRY(catalogue.add(request.name, part.manifest.root()));
      break;
    }
    TRY(catalogue.note_unfinished(request.name, {disk.source, part.next_chunk, part.manifest.root()}));
  }
  TRY(catalogue.forget_unfinished(request.name));
  return part.manifest.root();
}

}  // namespace

Result<ImageFormat> image_format(std::string_view name) {
  constexpr std::pair<std::string_view, ImageFormat> kNames[] = {{"raw", ImageFormat::kRaw},
                                                                 {"qcow2", ImageFormat::kQcow2},
                                                                 {"tar", ImageFormat::kTar},
                                                                 {"dir", ImageFormat::kDirectory},
                                                                 {"oci", ImageFormat::kOci}};
  for (const auto& [known, format] : kNames)
    if (name == known) return format;
  return fail(ErrorKind::kInvalid, "image format '" + std::string(name) + "'; raw, qcow2, tar, dir and oci are known");
}

Result<image::ManifestRoot> import_image(const ImportRequest& request, chunk::Store& store, Catalogue& catalogue,
                                         const OnProgress& progress) {
  TRY(check_image_name(request.name));
  if (const Result<image::ManifestRoot> there = catalogue.get(request.name);
      there || there.error().kind() != ErrorKind::kNotFound)
    return fail(ErrorKind::kExists, "there is an image '" + request.name + "' already");
  TRY_ASSIGN(const DiskForm disk, disk_form_of(request, progress));
  return store_in_steps(request, disk, store, catalogue, progress);
}

}  // namespace ramet::commit
