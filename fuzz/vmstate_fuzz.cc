// Arbitrary bytes as a vmstate file, and as the body behind a correct header (which a checksum would otherwise hide from the
// fuzzer). What decodes must encode and decode again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "vmm/snapshot/vmstate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ramet::vmm;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)decode_vmstate(bytes);
  const VmStateHeader header{.vcpus = 1, .memory_bytes = 64ull << 20, .cpu_model = "fuzz", .body_bytes = size};
  const ramet::Result<VmState> state = decode_vmstate_body(header, bytes);
  if (state && !decode_vmstate(encode_vmstate(*state))) std::abort();
  return 0;
}
