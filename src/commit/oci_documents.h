// commit/oci_documents.h - the documents of an OCI image layout that has one image of one layer, as we write it: nothing in
// them depends on when and where. Source: OCI image-spec v1.0, image-layout, index, manifest and config. Not here: reading
// foreign ones (oci_json.h), where they are written (oci_export.h). Thread: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/digest.h"

namespace ramet::commit {

inline constexpr std::string_view kOciBlobs = "blobs/sha256/";

// A tar that is not compressed, so that its digest is also that of what comes out of it.
struct OciLayer {
  Digest digest;
  uint64_t bytes = 0;
};
struct OciDocument {
  std::string path;  // in the layout
  std::string text;
};
struct OciDocuments {
  OciDocument layout, index, manifest, config;
};
// `tag`: of the image in the index.
OciDocuments oci_documents(const OciLayer& layer, std::string_view tag);

}  // namespace ramet::commit
