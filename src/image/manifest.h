// image/manifest.h - which chunks an image consists of: looked up, changed, sealed. Pages come and go through functions that
// the owner gives, so nothing here knows a store. Only pages that somebody looks at are in memory, and only changed ones are
// written again. Thread: one at a time. A resource.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "image/manifest_format.h"

namespace ramet::image {

class Manifest {
 public:
  // The bytes of a page, already checked against this digest.
  using LoadPage = std::function<Result<std::string>(const Digest& page)>;
  // Keeps the bytes and answers their digest. `before`: the page that they are in place of, or kZeros.
  using KeepPage = std::function<Result<Digest>(const std::string& page, const Digest& before)>;

  // All zeros.   Errors: kInvalid (size).
  static Result<Manifest> empty(ImageKind kind, uint64_t blocks);
  static Manifest of(ManifestRoot root, LoadPage load) { return Manifest(std::move(root), std::move(load)); }

  const ManifestRoot& root() const { return root_; }  // as it was sealed last
  uint64_t chunks() const { return chunks_of(root_.kind, root_.blocks); }
  // kZeros for zeros.   Errors: kInvalid (no such chunk), those of LoadPage.
  Result<Digest> chunk(uint64_t number);
  Status set(uint64_t number, const Digest& digest);
  // Writes what changed; afterwards root() is the whole image.   Errors: those of KeepPage; seal() may be called again then.
  Status seal(const KeepPage& keep);

 private:
  Manifest(ManifestRoot root, LoadPage load) : root_(std::move(root)), load_(std::move(load)) {}
  Result<ManifestPage*> page_with(uint64_t chunk);
  ManifestRoot root_;
  LoadPage load_;
  struct Page {
    ManifestPage digests{};
    bool changed = false;
  };
  std::map<uint64_t, Page> pages_;
};

// Calls visit(number, a's digest, b's digest) for each chunk that differs; equal pages are not even loaded.   Requires: both
// sealed. Errors: kInvalid (images of different kind or size), those of LoadPage.
Status visit_differences(Manifest& a, Manifest& b, const std::function<void(uint64_t, const Digest&, const Digest&)>& visit);

}  // namespace ramet::image
