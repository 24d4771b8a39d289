// The agent's way from bytes to a checked request: framing with arbitrary cuts, the message, the checks of its fields.
// First input byte: how the stream is cut into reads. Nothing is executed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "abi/agent.pb.h"
#include "abi/frame.h"
#include "files/operations.h"
#include "identity.h"
#include "init/machine.h"
#include "spawn.h"

namespace {

void check(bool ok) {
  if (!ok) std::abort();
}

void check_request(const ramet::abi::Request& request) {
  using namespace ramet::guest;
  if (request.has_exec()) (void)validate(request.exec()).has_value();
  if (request.has_identify()) (void)validate(request.identify()).has_value();
  if (request.has_read()) (void)check_path(request.read().path()).has_value();
  if (request.has_write()) check(!parent_of(request.write().path()).empty());
  std::string again;
  check(ramet::abi::append_frame(request, again) || request.ByteSizeLong() > ramet::abi::kMaxFrameBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = 1 + data[0];
  ramet::abi::FrameBuffer frames;
  bool first = true;
  for (size_t at = 1; at < size; at += step) {
    frames.feed(reinterpret_cast<const char*>(data) + at, std::min(step, size - at));
    while (const std::optional<std::string_view> message = frames.next()) {
      const int length = static_cast<int>(message->size());
      ramet::abi::Request request;
      ramet::abi::Input input;
      if (first && request.ParseFromArray(message->data(), length)) check_request(request);
      if (!first) (void)input.ParseFromArray(message->data(), length);
      first = false;
    }
    check(frames.pending() <= size);
  }
  (void)ramet::guest::parse_kernel_options({reinterpret_cast<const char*>(data), size});
  return 0;
}
