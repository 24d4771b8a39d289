#include "api/utf8.h"

#include <array>
#include <cstdint>

namespace ramet::api {
namespace {

// Length a sequence must have by its first byte; 0 for a byte that starts none (RFC 3629).
size_t sequence_length(unsigned char c) {
  if (c < 0x80) return 1;
  if (c >= 0xc2 && c <= 0xdf) return 2;
  if (c >= 0xe0 && c <= 0xef) return 3;
  if (c >= 0xf0 && c <= 0xf4) return 4;
  return 0;
}

bool continuation_ok(unsigned char first, size_t index, unsigned char c) {
  unsigned char low = 0x80, high = 0xbf;
  if (index == 1) {
    if (first == 0xe0) low = 0xa0;   // no overlong forms
    if (first == 0xed) high = 0x9f;  // no surrogates
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;  // nothing above U+10FFFF
  }
  return c >= low && c <= high;
}

// Length of the valid sequence at the start of `s`; 0 when there is none.
size_t valid_prefix(std::string_view s) {
  const auto first = static_cast<unsigned char>(s[0]);
  const size_t n = sequence_length(first);
  if (n == 0 || n > s.size()) return 0;
  for (size_t i = 1; i < n; i++)
    if (!continuation_ok(first, i, static_cast<unsigned char>(s[i]))) return 0;
  return n;
}

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> make_reverse() {
  std::array<int8_t, 256> r{};
  for (int8_t& v : r) v = -1;
  for (size_t i = 0; i < kAlphabet.size(); i++) r[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  return r;
}
constexpr std::array<int8_t, 256> kReverse = make_reverse();

}  // namespace

bool is_utf8(std::string_view s) {
  while (!s.empty()) {
    const size_t n = valid_prefix(s);
    if (n == 0) return false;
    s.remove_prefix(n);
  }
  return true;
}

size_t incomplete_utf8_tail(std::string_view s) {
  for (size_t back = 1; back <= 3 && back <= s.size(); back++) {
    const auto c = static_cast<unsigned char>(s[s.size() - back]);
    if ((c & 0xc0) == 0x80) continue;
    if (sequence_length(c) <= back) return 0;
    for (size_t i = 1; i < back; i++)
      if (!continuation_ok(c, i, static_cast<unsigned char>(s[s.size() - back + i]))) return 0;
    return back;
  }
  return 0;
}

std::string to_valid_utf8(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  while (!s.empty()) {
    const size_t n = valid_prefix(s);
    if (n == 0) {
      out += "\xef\xbf\xbd";
      s.remove_prefix(1);
    } else {
      out += s.substr(0, n);
      s.remove_prefix(n);
    }
  }
  return out;
}

std::string base64_encode(std::string_view in) {
  std::string out;
  out.reserve((in.size() + 2) / 3 * 4);
  for (size_t i = 0; i < in.size(); i += 3) {
    uint32_t v = 0;
    const size_t n = std::min<size_t>(3, in.size() - i);
    for (size_t k = 0; k < 3; k++) v = (v << 8) | (k < n ? static_cast<unsigned char>(in[i + k]) : 0);
    for (size_t k = 0; k < 4; k++) out += k <= n ? kAlphabet[(v >> (18 - 6 * k)) & 63] : '=';
  }
  return out;
}

std::optional<std::string> base64_decode(std::string_view in) {
  if (in.size() % 4 != 0) return std::nullopt;
  std::string out;
  out.reserve(in.size() / 4 * 3);
  for (size_t i = 0; i < in.size(); i += 4) {
    const bool last = i + 4 == in.size();
    size_t pad = 0;
    uint32_t v = 0;
    for (size_t k = 0; k < 4; k++) {
      const char c = in[i + k];
      if (c == '=' && last && k >= 2) {
        pad++;
        v <<= 6;
        continue;
      }
      const int8_t d = kReverse[static_cast<unsigned char>(c)];
      if (d < 0 || pad > 0) return std::nullopt;
      v = (v << 6) | static_cast<uint32_t>(d);
    }
    for (size_t k = 0; k < 3 - pad; k++) out += static_cast<char>((v >> (16 - 8 * k)) & 0xff);
  }
  return out;
}

}  // namespace ramet::api
