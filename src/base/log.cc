#include "base/log.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ramet {
namespace {
struct LogState {
  char prefix[96] = "ramet";
  LogLevel level = LogLevel::kInfo;
};
LogState state;  // written only while single-threaded (log_init)

std::atomic<uint64_t> lost_lines{0};  // since the last line that was written
std::atomic<int> lost_why{0};         // errno
std::atomic<bool> torn{false};        // the last line was written in part: its end is missing

std::string format_line(LogLevel level, std::string_view message) {
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
  return line;
}

bool put(std::string line) {
  if (torn.exchange(false)) line.insert(line.begin(), '\n');
  const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return true;
  lost_why = written < 0 ? errno : ENOSPC;
  // Of a line that begins by ending the one before, the first byte does that.
  if (written > 0 ? line[static_cast<size_t>(written) - 1] != '\n' : line.front() == '\n') torn = true;
  return false;
}

bool say_what_was_lost() {
  const uint64_t lost = lost_lines.exchange(0);
  if (lost == 0) return true;
  char buffer[128];
  const std::string why = ::strerror_r(lost_why, buffer, sizeof buffer);
  if (put(format_line(LogLevel::kWarn, std::to_string(lost) + " lines of this log are missing: " + why))) return true;
  lost_lines += lost;
  return false;
}
}  // namespace

void log_init(std::string_view program, std::string_view tag, LogLevel level) {
  if (tag.empty())
    std::snprintf(state.prefix, sizeof state.prefix, "%.*s", static_cast<int>(program.size()), program.data());
  else
    std::snprintf(state.prefix, sizeof state.prefix, "%.*s[%.*s]", static_cast<int>(program.size()), program.data(),
                  static_cast<int>(tag.size()), tag.data());
  state.level = level;
  lost_lines = 0;  // in a forked child: those are its parent's
}

void log_line(LogLevel level, std::string_view message) {
  if (level < state.level) return;
  const int err = errno;  // callers have yet to look at it
  if (!say_what_was_lost() || !put(format_line(level, message))) lost_lines++;
  errno = err;
}

}  // namespace ramet
