#include "cli/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>

namespace ramet::cli {
namespace {

std::string printed(const char* format, double value) {
  char text[48];
  snprintf(text, sizeof text, format, value);
  return text;
}

std::optional<uint64_t> leading_number(std::string_view text, std::string_view* rest) {
  uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc()) return std::nullopt;
  *rest = text.substr(static_cast<size_t>(end - text.data()));
  return value;
}

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// "12h" with the units given; the first unit is the one of a bare number.
template <size_t N>
std::optional<uint64_t> number_with_unit(std::string_view text, const std::array<Unit, N>& units) {
  std::string_view unit;
  const std::optional<uint64_t> number = leading_number(text, &unit);
  if (!number) return std::nullopt;
  for (const Unit& u : units) {
    uint64_t out = 0;
    if ((unit == u.name || (unit.empty() && &u == units.data())) && !__builtin_mul_overflow(*number, u.factor, &out))
      return out;
  }
  return std::nullopt;
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr std::array<const char*, 4> kUnits = {"%.1f KiB", "%.1f MiB", "%.1f GiB", "%.1f TiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    unit++;
  }
  return printed(kUnits[unit], value);
}

std::string format_ms(double ms) {
  if (ms < 10) return printed("%.2f ms", ms);
  if (ms < 1000) return printed("%.0f ms", ms);
  return printed("%.1f s", ms / 1000);
}

std::string format_span(int64_t s) {
  s = std::max<int64_t>(s, 0);
  if (s < 60) return std::to_string(s) + "s";
  if (s < 3600) return std::to_string(s / 60) + "m";
  if (s < 48 * 3600) return std::to_string(s / 3600) + "h";
  return std::to_string(s / 86400) + "d";
}

std::optional<int64_t> parse_time(std::string_view text) {
  tm parts{};
  const std::string copy(text);
  const char* end = ::strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr || !copy.ends_with('Z')) return std::nullopt;
  return ::timegm(&parts);
}

Result<uint64_t> parse_duration(std::string_view text) {
  constexpr std::array<Unit, 4> kUnits = {Unit{"s", 1}, Unit{"m", 60}, Unit{"h", 3600}, Unit{"d", 86400}};
  if (const std::optional<uint64_t> s = number_with_unit(text, kUnits)) return *s;
  return fail(ErrorKind::kInvalid, "`" + std::string(text) + "` is not a time span; write 90s, 15m, 2h or 1d");
}

Result<uint64_t> parse_mib(std::string_view text) {
  constexpr std::array<Unit, 5> kUnits = {Unit{"M", 1}, Unit{"MiB", 1}, Unit{"G", 1024}, Unit{"GiB", 1024}, Unit{"T", 1 << 20}};
  if (const std::optional<uint64_t> mib = number_with_unit(text, kUnits)) return *mib;
  return fail(ErrorKind::kInvalid, "`" + std::string(text) + "` is not an amount of memory; write 512M or 2G");
}

Result<std::map<std::string, std::string>> parse_pairs(const std::vector<std::string>& words, std::string_view what) {
  std::map<std::string, std::string> out;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(ErrorKind::kInvalid, std::string(what) + " `" + word + "` must be NAME=VALUE");
    out[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return out;
}

std::string printable(std::string_view text, Lines lines) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (lines == Lines::kKeep && (c == '\n' || c == '\t')) {
      out += c;
    } else if (lines == Lines::kKeep && c == '\r') {
      continue;
    } else if (u < 0x20 || u == 0x7f) {
      out += '^';
      out += static_cast<char>(u ^ 0x40);
    } else {
      out += c;
    }
  }
  return out;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '\033') {
      while (i < text.size() && text[i] != 'm') i++;
      continue;
    }
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) width++;
  }
  return width;
}

std::string Table::render() const {
  std::vector<size_t> widths;
  for (const Column& c : columns_) widths.push_back(display_width(c.title));
  for (const std::vector<std::string>& row : rows_)
    for (size_t i = 0; i < row.size(); i++) widths[i] = std::max(widths[i], display_width(row[i]));

  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); i++) {
      const std::string& cell = cell_of(i);
      const std::string padding(widths[i] - display_width(cell), ' ');
      if (i > 0) line += "  ";
      line += columns_[i].align == Align::kRight ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const std::vector<std::string>& row : rows_) add_line([&](size_t i) -> const std::string& { return row[i]; });
  return out;
}

std::string span_since(const std::string& time, int64_t now) {
  const std::optional<int64_t> at = parse_time(time);
  return at ? format_span(now - *at) : "-";
}
std::string span_until(const std::string& time, int64_t now) {
  const std::optional<int64_t> at = parse_time(time);
  return at ? format_span(*at - now) : "-";
}

}  // namespace ramet::cli
