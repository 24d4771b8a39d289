// cli/build_log.h - what a step of a build prints: to the user in whole lines, and the end of it for an error.
// Not here: what the step is (template_steps.cc). Thread: one.
#pragma once

#include <string>
#include <string_view>

#include "cli/exec_reader.h"

namespace ramet::cli {

class BuildLog {
 public:
  enum class Show { kNothing, kLines };
  explicit BuildLog(Show show) : show_(show) {}
  void add(std::string_view bytes);
  // A last line without an end.
  void flush();
  // Of a command's both streams. Lives as long as this.
  ExecSinks sinks();
  // "its output ends with: ...", made safe for a terminal.
  std::string tail() const;

 private:
  void print(const std::string& line) const;
  const Show show_;
  std::string tail_, line_;
};

}  // namespace ramet::cli
