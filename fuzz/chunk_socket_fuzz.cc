// One packet of the chunk socket, taken for a reader's and for the daemon's. What is accepted is what the encoder writes (a
// failure's unknown word apart), and every number in it is one that a disk can have.
#include <cstdlib>

#include "base/file.h"
#include "image/chunk_protocol.h"

namespace {

using namespace ramet;
using namespace ramet::image;

void check(bool good) {
  if (!good) abort();
}

void check_numbers(const DaemonMessage& message) {
  if (const Zeros* zeros = std::get_if<Zeros>(&message)) check(range_fits(zeros->range, kMaxDiskBlocks) && zeros->id != 0);
  if (const Data* data = std::get_if<Data>(&message)) {
    check(range_fits(data->range, kMaxDiskBlocks) && data->id != 0);
    check(data->bytes.size() == data->range.count * kBlockBytes && data->range.count <= kMaxAnswerBlocks);
  }
  if (const Chunk* chunk = std::get_if<Chunk>(&message)) check(chunk->chunk < kMaxDiskBlocks / kChunkBlocks);
}

std::string written_again(const DaemonMessage& message) {
  std::string out = encode(message);
  if (const Data* data = std::get_if<Data>(&message))
    out.append(reinterpret_cast<const char*>(data->bytes.data()), data->bytes.size());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string packet(reinterpret_cast<const char*>(data), size);
  if (const Result<ReaderMessage> message = decode_reader_message(as_bytes(packet))) check(encode(*message) == packet);
  const Result<DaemonMessage> message = decode_daemon_message(as_bytes(packet));
  if (!message) return 0;
  check_numbers(*message);
  const bool strange_word = std::holds_alternative<Failed>(*message) && std::get<Failed>(*message).kind == ErrorKind::kInternal;
  check(strange_word || written_again(*message) == packet);
  return 0;
}
