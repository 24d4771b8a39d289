#include "cli/terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/text.h"

namespace ramet::cli {

bool has_colours(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && std::getenv("NO_COLOR") == nullptr && term != nullptr && strcmp(term, "dumb") != 0;
}

std::string painted(std::string_view text, Colour colour, bool on) {
  if (!on) return std::string(text);
  const char* start = "";
  switch (colour) {
    case Colour::kBold: start = "\033[1m"; break;
    case Colour::kDim: start = "\033[2m"; break;
    case Colour::kRed: start = "\033[31m"; break;
    case Colour::kGreen: start = "\033[32m"; break;
    case Colour::kYellow: start = "\033[33m"; break;
  }
  return std::string(start) + std::string(text) + "\033[0m";
}

bool is_utf8_locale() { return strcmp(::nl_langinfo(CODESET), "UTF-8") == 0; }

TerminalSize terminal_size(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {size.ws_row, size.ws_col};
}

RawTerminal::RawTerminal(int fd) : fd_(fd) {
  if (::tcgetattr(fd_, &before_) != 0) return;
  termios raw = before_;
  ::cfmakeraw(&raw);
  changed_ = ::tcsetattr(fd_, TCSADRAIN, &raw) == 0;
}

RawTerminal::~RawTerminal() {
  if (changed_) ::tcsetattr(fd_, TCSADRAIN, &before_);
}

Progress::Progress(std::string what, uint64_t total, bool quiet)
    : what_(std::move(what)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      quiet_(quiet),
      begin_(MonotonicClock::now()) {
  if (!quiet_ && !terminal_) fprintf(stderr, "%s\n", what_.c_str());
}

Progress::~Progress() {
  if (!quiet_ && terminal_ && !finished_ && shown_ != MonotonicClock::time_point()) fputc('\n', stderr);
}

void Progress::add(uint64_t bytes) {
  current_ += bytes;
  if (quiet_ || !terminal_) return;
  const MonotonicClock::time_point now = MonotonicClock::now();
  if (now - shown_ < Milliseconds(100)) return;
  shown_ = now;
  show();
}

void Progress::show() {
  std::string line = what_ + "  " + format_bytes(current_);
  if (total_ > 0)
    line += " of " + format_bytes(total_) + "  " + std::to_string(std::min<uint64_t>(100, current_ * 100 / total_)) + " %";
  fprintf(stderr, "\r\033[K%s", line.c_str());
  fflush(stderr);
}

void Progress::done() {
  finished_ = true;
  if (quiet_) return;
  const double ms = std::chrono::duration<double, std::milli>(MonotonicClock::now() - begin_).count();
  fprintf(stderr, "%s%s: %s in %s\n", terminal_ ? "\r\033[K" : "", what_.c_str(), format_bytes(current_).c_str(),
          format_ms(ms).c_str());
}

Waiting::Waiting(std::string what, bool quiet) : what_(std::move(what)) {
  if (!quiet) thread_ = std::thread([this] { tell(); });
}

Waiting::~Waiting() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Waiting::tell() {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const MonotonicClock::time_point begin = MonotonicClock::now();
  bool told = false;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::seconds(told ? 1 : 2), [this] { return done_; })) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(MonotonicClock::now() - begin).count();
    if (terminal)
      fprintf(stderr, "\r\033[K%s  %s", what_.c_str(), format_span(seconds).c_str());
    else if (!told)
      fprintf(stderr, "ramet: %s\n", what_.c_str());
    fflush(stderr);
    told = true;
  }
  if (terminal && told) fprintf(stderr, "\r\033[K");
}

}  // namespace ramet::cli
