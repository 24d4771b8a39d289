// A disk as it comes, read as an ext4 file system under small limits: what comes out is an error, or a tar that is no longer
// than the disk and its names can be.
#include <cstdlib>

#include "commit/ext4_tar.h"
#include "commit/testing/memory_disk.h"

namespace {

using namespace ramet;
using namespace ramet::commit;

const ImageLimits kLimits{.max_metadata_bytes = 1 << 18, .max_files = 500};
constexpr uint64_t kMostPerFile = 3u << 20;  // headers: names and attributes

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const testing::MemoryDisk disk(std::as_bytes(std::span(data, size)));
  uint64_t bytes = 0;
  const Status done = write_tar(disk, TarUse::kLayer, kLimits, [&](std::span<const std::byte> part) -> Status {
    bytes += part.size();
    return {};
  });
  if (done && bytes > size + 4096 + kLimits.max_files * kMostPerFile) abort();
  return 0;
}
