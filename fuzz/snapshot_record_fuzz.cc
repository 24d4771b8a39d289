// The record of a snapshot, as it comes and with its checksums made right. What is accepted is what the encoder writes.
#include <cstdlib>
#include <cstring>

#include "base/crc32c.h"
#include "base/file.h"
#include "commit/snapshot_record.h"
#include "input.h"

namespace {

using namespace ramet;
using namespace ramet::commit;

void check(bool good) {
  if (!good) abort();
}

void make_right(std::string& bytes) {
  if (bytes.size() < kSnapshotHeaderBytes) return;
  const uint32_t body = crc32c(bytes.data() + kSnapshotHeaderBytes, bytes.size() - kSnapshotHeaderBytes);
  std::memcpy(bytes.data() + 56, &body, sizeof body);
  const uint32_t header = crc32c(bytes.data(), 60);
  std::memcpy(bytes.data() + 60, &header, sizeof header);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(data, size);
  const bool right = in.coin();
  std::string bytes = in.bytes(4096);
  if (right) make_right(bytes);
  const Result<SnapshotRecord> record = decode_snapshot(as_bytes(bytes));
  if (!record) return 0;
  check(encode_snapshot(*record).value() == bytes);
  check(roots_of(*record).size() == (record->machine ? 3 : 1));
  return 0;
}
