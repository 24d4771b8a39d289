// cli/text.h - numbers, times and tables as people read them, and the few words people write. Thread: pure functions, values.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ramet::cli {

std::string format_bytes(uint64_t bytes);  // "812 B", "12.3 MiB"
std::string format_ms(double ms);          // "0.84 ms", "12 ms", "3.2 s"
std::string format_span(int64_t seconds);  // "12s", "4m", "3h", "2d"
// RFC 3339 -> seconds since the epoch.
std::optional<int64_t> parse_time(std::string_view rfc3339);
// From or to such a time, as format_span(); "-" if it is none.
std::string span_since(const std::string& time, int64_t now);
std::string span_until(const std::string& time, int64_t now);

// "90", "90s", "15m", "2h", "1d" -> seconds.   Errors: kInvalid.
Result<uint64_t> parse_duration(std::string_view text);
// "key=value" words -> map.   Errors: kInvalid.
Result<std::map<std::string, std::string>> parse_pairs(const std::vector<std::string>& words, std::string_view what);
// "4G", "512M", "1024" (MiB) -> MiB.   Errors: kInvalid.
Result<uint64_t> parse_mib(std::string_view text);

// Control characters become visible, so that a guest's text cannot drive the terminal. kKeep lets newlines and tabs through and
// drops carriage returns.
enum class Lines { kEscape, kKeep };
std::string printable(std::string_view text, Lines lines = Lines::kEscape);
// Columns a terminal uses for UTF-8 text; escape sequences count nothing.
size_t display_width(std::string_view text);

enum class Align { kLeft, kRight };
class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Requires: one cell per column.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  // Lines without trailing spaces.
  std::string render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ramet::cli
