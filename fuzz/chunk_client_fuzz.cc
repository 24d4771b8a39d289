// A chunked source whose daemon says whatever the input wants: messages as the code writes them with numbers of the input,
// noise, descriptors that do not belong there. Every read ends, with an error or with what an answer to that block said; no
// descriptor is left behind.
#include <sys/socket.h>

#include <cstdlib>

#include "base/file.h"
#include "base/log.h"
#include "base/socket.h"
#include "descriptors.h"
#include "image/chunked_source.h"
#include "input.h"

namespace {

using namespace ramet;
using namespace ramet::image;

constexpr uint64_t kBlocks = 2 * kChunkBlocks + 77;
constexpr int kReads = 3;

void check(bool good) {
  if (!good) abort();
}

uint64_t some_block(FuzzInput& in) { return in.rarely(20) ? in.number<uint64_t>() : in.upto(kBlocks); }
BlockRange some_range(FuzzInput& in) { return {some_block(in), in.rarely(10) ? some_block(in) : 1 + in.upto(40)}; }
// The asks of this reader have the numbers 1, 2 and 3.
uint64_t some_id(FuzzInput& in) { return in.rarely(20) ? in.number<uint64_t>() : 1 + in.upto(3); }

std::string some_message(FuzzInput& in) {
  switch (in.upto(7)) {
    case 0: return encode(DaemonMessage(Welcome{in.rarely(10) ? some_block(in) : kBlocks, in.upto(1)}));
    case 1: return encode(DaemonMessage(GiveBack{in.upto(4)}));
    case 2: return encode(DaemonMessage(Failed{some_id(in), ErrorKind::kIo, in.bytes(20)}));
    case 3:
    case 4: return encode(DaemonMessage(Zeros{some_id(in), some_range(in)}));
    case 5: {
      const Data data{some_id(in), some_range(in), {}};
      const uint64_t blocks = in.rarely(10) ? in.upto(40) : std::min<uint64_t>(data.range.count, 40);
      return encode(DaemonMessage(data)) + std::string(blocks * kBlockBytes, 'd');
    }
    case 6: return encode(DaemonMessage(Chunk{some_id(in), in.upto(3)}));
    default: return in.bytes(100);
  }
}

// Says everything at once, as far as it fits; the last word ends what still waits. False: it did not fit.
bool speak(FuzzInput& in, int socket, int file) {
  const std::string bye = encode(DaemonMessage(Failed{0, ErrorKind::kIo, "bye"}));
  if (!in.rarely(10)) (void)send_message(socket, as_bytes(encode(DaemonMessage(Welcome{kBlocks}))), {}, MonotonicClock::now());
  for (uint32_t left = in.upto(20); left > 0; left--) {
    const std::string message = some_message(in);
    const std::vector<int> fds(in.rarely(5) ? in.upto(3) : message.size() == 24 && message[0] == 20, file);
    if (!message.empty()) (void)send_message(socket, as_bytes(message), fds, MonotonicClock::now());
  }
  return send_message(socket, as_bytes(bye), {}, MonotonicClock::now()).has_value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  log_init("fuzz", "", static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1));
  const int before = count_open_descriptors();
  {
    FuzzInput in(data, size);
    const UniqueFd file = *make_memfd("chunk", 10 * kBlockBytes);
    SocketPair pair = *make_socket_pair(SOCK_SEQPACKET);
    const int room = 8 << 20;
    check(::setsockopt(pair.a.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) == 0 ||
          ::setsockopt(pair.a.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    ChunkedSource source(kBlocks, std::move(pair.b));
    const bool will_end = speak(in, pair.a.get(), file.get());
    for (int i = 0; i < kReads && will_end; i++) {
      if (in.rarely(10)) (void)source.tend();
      const BlockRange range{some_block(in), 1 + in.upto(8)};
      std::string bytes(range.count * kBlockBytes, 'x');
      const iovec v{bytes.data(), bytes.size()};
      const Result<bool> read = source.read(range, {&v, 1}, in.rarely(5) ? Wait::kNever : Wait::kAllowed);
      // Nothing here is an x but what was never filled.
      check(!read || !*read || bytes.find('x') == std::string::npos);
    }
  }
  check(count_open_descriptors() == before);
  return 0;
}
