// First byte chooses the decoder, the rest is the request's bytes. Nothing may crash, and what is accepted must keep its
// limits.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "api/requests.h"
#include "api/router.h"
#include "api/utf8.h"
#include "api/zstd_reader.h"

using namespace ramet;
using namespace ramet::api;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void decode_body(uint8_t choice, std::string_view body) {
  switch (choice % 10) {
    case 0:
      if (const auto r = decode_create(body))
        require((!r->snapshot.empty() || check_template_name(r->template_name).has_value()) && r->labels.size() <= 64);
      if (const auto r = decode_save_template(body)) require(!r->snapshot.empty());
      break;
    case 1:
      if (const auto r = decode_patch(body)) require(r->ttl_seconds.value_or(0) <= static_cast<uint64_t>(kMaxTtlSeconds));
      break;
    case 2:
      if (const auto r = decode_fork(body)) require(r->count >= 1 && r->count <= kMaxChildren);
      break;
    case 3:
      if (const auto r = decode_exec(body))
        require(!r->options.argv.empty() || !r->options.shell.empty() || r->options.pty.has_value());
      break;
    case 4:
      if (const auto r = decode_signal(body)) require(*r >= 1 && *r <= 64);
      break;
    case 5:
      if (const auto r = decode_mkdir(body)) require(r->path.starts_with('/'));
      break;
    case 6:
      if (const auto r = decode_move(body)) require(r->from.starts_with('/') && r->to.starts_with('/'));
      break;
    case 7:
      if (const auto r = parse_target(body)) {
        (void)r->flag("follow");
        const auto path = match_path("/v1/{a}/{b}", r->segments);
        require(r->segments.size() <= 16 && (!path || path->values.size() == 2));
      }
      break;
    case 8: {
      const std::string text = to_valid_utf8(body);
      require(is_utf8(text) && incomplete_utf8_tail(body) <= 3);
      if (const auto plain = base64_decode(body)) require(base64_encode(*plain).size() == body.size());
      break;
    }
    default: {
      size_t total = 0;
      ZstdReader reader;
      (void)reader.decode(std::as_bytes(std::span(body.data(), body.size())), [&](std::span<const std::byte> plain) -> Status {
        total += plain.size();
        if (total > (8u << 20)) return fail(ErrorKind::kInvalid, "enough");
        return {};
      });
      (void)reader.finish();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  decode_body(data[0], std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
