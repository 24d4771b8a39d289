#include "base/log.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>

namespace ramet {
namespace {
struct LogState {
  char prefix[96] = "ramet";
  LogLevel level = LogLevel::kInfo;
};
LogState state;  // written only while single-threaded (log_init)
}  // namespace

void log_init(std::string_view program, std::string_view tag, LogLevel level) {
  if (tag.empty())
    std::snprintf(state.prefix, sizeof state.prefix, "%.*s", static_cast<int>(program.size()), program.data());
  else
    std::snprintf(state.prefix, sizeof state.prefix, "%.*s[%.*s]", static_cast<int>(program.size()), program.data(),
                  static_cast<int>(tag.size()), tag.data());
  state.level = level;
}

void log_line(LogLevel level, std::string_view message) {
  if (level < state.level) return;
  static constexpr const char* kNames[] = {"debug", "info", "warn", "error"};
  timespec ts;
  ::clock_gettime(CLOCK_REALTIME, &ts);
  tm utc;
  ::gmtime_r(&ts.tv_sec, &utc);
  char head[160];
  const int n = std::snprintf(head, sizeof head, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s: ", utc.tm_year + 1900,
                              utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, ts.tv_nsec / 1000000,
                              kNames[static_cast<int>(level)], state.prefix);
  std::string line(head, static_cast<size_t>(n));
  for (const char c : message) line += (c == '\n' || c == '\r') ? ' ' : c;
  line += '\n';
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace ramet
