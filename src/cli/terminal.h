// cli/terminal.h - what is known about the user's terminal: colours, size, raw mode, progress lines.
// Not here: what is printed. Thread: RawTerminal by one owner; its destructor gives the terminal back as it was.
#pragma once

#include <termios.h>

#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace ramet::cli
