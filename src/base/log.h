// base/log.h - one line per event to stderr, one write(2) each, no locks: safe around fork(2) and from any thread.
// Format: RFC 3339 time, level, program[tag], message. What stderr does not take (a full disk) is lost, and the next line that
// it takes says how much that was: nobody waits for a log. Not here: levels per module, files, rotation.
#pragma once

#include <string>
#include <string_view>

namespace ramet {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Program name and a tag such as a sandbox id; set at start and again in a forked child. Not thread-safe.
void log_init(std::string_view program, std::string_view tag, LogLevel level);
void log_line(LogLevel level, std::string_view message);

inline void log_debug(std::string_view m) { log_line(LogLevel::kDebug, m); }
inline void log_info(std::string_view m) { log_line(LogLevel::kInfo, m); }
inline void log_warn(std::string_view m) { log_line(LogLevel::kWarn, m); }
inline void log_error(std::string_view m) { log_line(LogLevel::kError, m); }

}  // namespace ramet
