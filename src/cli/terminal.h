// cli/terminal.h - what is known about the user's terminal: colours, size, raw mode, progress lines.
// Not here: what is printed. Thread: one owner each; RawTerminal gives the terminal back as it was.
#pragma once

#include <termios.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/result.h"

namespace ramet::cli {

enum class Colour { kBold, kDim, kRed, kGreen, kYellow };
// Escape sequences only when `fd` is a terminal, NO_COLOR is not set and TERM is not dumb.
bool has_colours(int fd);
std::string painted(std::string_view text, Colour colour, bool on);
bool is_utf8_locale();

struct TerminalSize {
  uint32_t rows = 24, cols = 80;
};
TerminalSize terminal_size(int fd);

class RawTerminal {
 public:
  // Nothing when `fd` is no terminal.
  explicit RawTerminal(int fd);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  int fd_;
  bool changed_ = false;
  termios before_{};
};

// What a long step has done so far, on stderr: one line that renews itself on a terminal, a line at start and end elsewhere.
class Progress {
 public:
  // `total` 0: not known.
  Progress(std::string what, uint64_t total, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(uint64_t bytes);
  void done();  // prints the sum; without it the step is taken as failed and only the line is ended

 private:
  void show();
  std::string what_;
  uint64_t total_, current_ = 0;
  bool terminal_, quiet_, finished_ = false;
  MonotonicClock::time_point begin_, shown_;
};

// Says what a call is waiting for once it takes longer than two seconds: a line with the seconds on a terminal, one plain line
// elsewhere. Owns: its thread, which ends with it.
class Waiting {
 public:
  Waiting(std::string what, bool quiet);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void tell();
  const std::string what_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace ramet::cli
