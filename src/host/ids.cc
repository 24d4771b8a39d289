#include "host/ids.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace ramet::host {

std::string random_bytes(size_t count) {
  std::string out(count, '\0');
  size_t have = 0;
  while (have < count) {
    const ssize_t n = ::getrandom(out.data() + have, count - have, 0);
    if (n > 0)
      have += static_cast<size_t>(n);
    else if (n < 0 && errno != EINTR)
      std::abort();  // the host has no randomness: nothing here may go on
  }
  return out;
}

std::string new_id(std::string_view prefix) {
  static constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::string out(prefix);
  out += '-';
  while (out.size() < prefix.size() + 14) {
    for (const char c : random_bytes(16)) {
      const unsigned value = static_cast<unsigned char>(c);
      if (value >= 252) continue;  // 7 * 36: keeps the distribution even
      out += kAlphabet[value % 36];
      if (out.size() == prefix.size() + 14) break;
    }
  }
  return out;
}

std::string new_machine_id() {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : random_bytes(16)) {
    const unsigned value = static_cast<unsigned char>(c);
    out += kHex[value >> 4];
    out += kHex[value & 15];
  }
  return out;
}

Status check_template_name(std::string_view name) {
  const auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  bool good = !name.empty() && name.size() <= 64 && alnum(name.front());
  for (const char c : name) good = good && (alnum(c) || c == '.' || c == '_' || c == '-');
  if (!good)
    return fail(ErrorKind::kInvalid,
                "template name '" + std::string(name.substr(0, 80)) +
                    "' must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit");
  return {};
}

bool is_id(std::string_view id) {
  if (id.size() != 16 || id[2] != '-') return false;
  for (size_t i = 0; i < id.size(); i++) {
    const char c = id[i];
    if (i == 2) continue;
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) return false;
  }
  return true;
}

}  // namespace ramet::host
