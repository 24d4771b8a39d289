// The documents of an OCI image as they come: what is taken is within the limits.
#include <cstdlib>

#include "commit/oci_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ramet::commit;
  if (size == 0) return 0;
  const std::string_view document(reinterpret_cast<const char*>(data + 1), size - 1);
  const ramet::Result<std::vector<OciDescriptor>> read =
      data[0] & 1 ? decode_oci_manifest(document) : decode_oci_index(document);
  if (!read) return 0;
  if (read->size() > kMaxOciDescriptors) abort();
  for (const OciDescriptor& one : *read)
    if ((one.kind == OciDescriptor::Kind::kLayer) != ((data[0] & 1) != 0)) abort();
  if (const auto chosen = choose_oci_image(*read, "latest"); chosen && chosen->tag != "latest") abort();
  return 0;
}
