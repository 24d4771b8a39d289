// bench/report.h - results of one benchmark: samples to percentiles, a table for people, one JSON object per row for machines.
// Not here: measuring. One thread. Values carry the row's unit ("ms", "us", "MiB").
#pragma once

#include <string>
#include <vector>

namespace ramet::bench {

struct Series {
  std::vector<double> samples;

  void add(double value) { samples.push_back(value); }
  bool empty() const { return samples.empty(); }
  // Nearest-rank percentile, 0 < p <= 100. Requires: not empty.
  double percentile(double p) const;
};

struct Row {
  std::string name;  // "case" in JSON
  std::string unit;
  Series measured;
  Series floor;      // empty where nothing is compared
  std::string note;  // why there are no samples, or what went wrong
};

class Report {
 public:
  // json_path may be empty.
  Report(std::string benchmark, std::string json_path);

  // Prints the row at once and keeps it for the JSON file.
  void add(const Row& row);
  // A case that could not be measured, with the reason.
  void skip(const std::string& name, const std::string& reason);
  // A case that went wrong: a row too, and the program's exit status.
  void fail(const std::string& name, const std::string& reason);
  // Writes the JSON file. Returns the exit status of the program.
  int finish();

 private:
  void print(const Row& row, const std::string& status);

  std::string benchmark_;
  std::string json_path_;
  std::vector<std::string> json_rows_;
  bool failed_ = false;
};

}  // namespace ramet::bench
