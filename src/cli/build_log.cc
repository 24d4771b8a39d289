#include "cli/build_log.h"

#include <cstdio>

#include "cli/text.h"

namespace ramet::cli {
namespace {
constexpr size_t kTailBytes = 2000;
constexpr size_t kLongestLine = 64 * 1024;
}  // namespace

void BuildLog::add(std::string_view bytes) {
  tail_.append(bytes);
  if (tail_.size() > 2 * kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  line_.append(bytes);
  size_t begin = 0;
  for (size_t end = 0; (end = line_.find('\n', begin)) != std::string::npos; begin = end + 1)
    print(line_.substr(begin, end - begin));
  line_.erase(0, begin);
  if (line_.size() > kLongestLine) flush();
}

void BuildLog::flush() {
  if (!line_.empty()) print(line_);
  line_.clear();
}

ExecSinks BuildLog::sinks() {
  ExecSinks sinks;
  sinks.out = sinks.err = [this](std::string_view bytes) -> Status {
    add(bytes);
    return {};
  };
  return sinks;
}

std::string BuildLog::tail() const {
  std::string text = tail_.size() > kTailBytes ? tail_.substr(tail_.size() - kTailBytes) : tail_;
  while (text.ends_with('\n')) text.pop_back();
  return text.empty() ? "it printed nothing" : "its output ends with:\n" + printable(text, Lines::kKeep);
}

void BuildLog::print(const std::string& line) const {
  if (show_ == Show::kLines) fprintf(stderr, "  %s\n", printable(line, Lines::kKeep).c_str());
}

}  // namespace ramet::cli
