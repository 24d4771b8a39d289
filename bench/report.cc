#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

namespace ramet::bench {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

}  // namespace

double Series::percentile(double p) const {
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  size_t rank = static_cast<size_t>(std::ceil(p / 100 * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

Report::Report(std::string benchmark, std::string json_path)
    : benchmark_(std::move(benchmark)), json_path_(std::move(json_path)) {
  std::printf("%s\n%-56s %5s %5s %9s %9s %9s %9s %6s\n", benchmark_.c_str(), "case", "unit", "n", "p50", "p99", "max",
              "floor p50", "ratio");
}

void Report::add(const Row& row) { print(row, row.measured.empty() ? "skipped" : "ok"); }

void Report::skip(const std::string& name, const std::string& reason) { print(Row{name, "", {}, {}, reason}, "skipped"); }

void Report::fail(const std::string& name, const std::string& reason) {
  failed_ = true;
  print(Row{name, "", {}, {}, reason}, "failed");
}

void Report::print(const Row& row, const std::string& status) {
  std::string json = "{\"benchmark\": " + quoted(benchmark_) + ", \"case\": " + quoted(row.name) +
                     ", \"status\": " + quoted(status) + ", \"unit\": " + quoted(row.unit) +
                     ", \"n\": " + std::to_string(row.measured.samples.size());
  if (row.measured.empty()) {
    std::printf("%-56s %s: %s\n", row.name.c_str(), status.c_str(), row.note.c_str());
  } else {
    double p50 = row.measured.percentile(50), p99 = row.measured.percentile(99), max = row.measured.percentile(100);
    json += ", \"p50\": " + number(p50) + ", \"p99\": " + number(p99) + ", \"max\": " + number(max);
    std::printf("%-56s %5s %5zu %9s %9s %9s", row.name.c_str(), row.unit.c_str(), row.measured.samples.size(),
                number(p50).c_str(), number(p99).c_str(), number(max).c_str());
    if (!row.floor.empty()) {
      double floor = row.floor.percentile(50);
      json += ", \"floor_p50\": " + number(floor) + ", \"floor_p99\": " + number(row.floor.percentile(99)) +
              ", \"ratio\": " + number(p50 / floor);
      std::printf(" %9s %6.2f", number(floor).c_str(), p50 / floor);
    }
    std::printf("%s%s\n", row.note.empty() ? "" : "  ", row.note.c_str());
  }
  if (!row.note.empty()) json += ", \"note\": " + quoted(row.note);
  std::fflush(stdout);
  json_rows_.push_back(json + "}");
}

int Report::finish() {
  if (!json_path_.empty()) {
    std::ofstream out(json_path_);
    for (const std::string& row : json_rows_) out << row << '\n';
    if (!out.flush()) {
      std::fprintf(stderr, "%s: cannot write\n", json_path_.c_str());
      return 1;
    }
  }
  return failed_ ? 1 : 0;
}

}  // namespace ramet::bench
