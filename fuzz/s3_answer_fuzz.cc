// What an S3 server answers: lists and errors. Whatever it is, a list stays within its limits and an error is one short line.
#include <algorithm>
#include <cstdlib>

#include "chunk/s3/answer.h"
#include "input.h"

namespace {

using namespace ramet;
using namespace ramet::chunk::s3;

void check(bool good) {
  if (!good) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const int status = input.number<uint16_t>();
  const std::span<const std::byte> body = std::as_bytes(std::span(data, size)).subspan(std::min<size_t>(2, size));
  if (const Result<ListedObjects> list = parse_list(body)) {
    check(list->keys.size() <= kMaxKeysPerList);
    for (const std::string& key : list->keys) check(key.size() <= body.size());
  }
  const std::string message = error_of(status, body).message();
  check(message.size() < 500);
  check(std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; }));
  return 0;
}
