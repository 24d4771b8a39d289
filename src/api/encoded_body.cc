#include "api/encoded_body.h"

#include <array>

#include "api/utf8.h"
#include "api/zstd_reader.h"

namespace ramet::api {
namespace {

enum class Encoding { kIdentity, kZstd };
Result<Encoding> body_encoding(const Exchange& exchange) {
  const std::string value = exchange.header("Content-Encoding").value_or("identity");
  if (value == "identity") return Encoding::kIdentity;
  if (value == "zstd") return Encoding::kZstd;
  return fail(ErrorKind::kInvalid,
              "Content-Encoding `" + to_valid_utf8(value.substr(0, 40)) + "` is not possible here, use identity or zstd");
}

}  // namespace

Status read_encoded_body(Exchange& exchange, const std::function<Status(std::span<const std::byte>)>& keep) {
  TRY_ASSIGN(const Encoding encoding, body_encoding(exchange));
  ZstdReader zstd;
  std::array<std::byte, 128 * 1024> piece;
  while (true) {
    TRY_ASSIGN(const size_t n, exchange.read_body(piece));
    if (n == 0) break;
    const std::span<const std::byte> bytes = std::span(piece).first(n);
    if (encoding == Encoding::kIdentity)
      TRY(keep(bytes));
    else
      TRY(zstd.decode(bytes, keep));
  }
  return encoding == Encoding::kZstd ? zstd.finish() : Status();
}

}  // namespace ramet::api
