// bench/floor/die.h - the floor programme stops at the first failed call: a measurement with a hole in it is worth nothing.
#pragma once

#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ramet::bench {

[[noreturn]] inline void die(const char* what) {
  std::fprintf(stderr, "fork_floor: %s: %s\n", what, std::strerror(errno));
  _exit(1);
}

template <class T>
T check(T result, const char* what) {
  if (result < 0) die(what);
  return result;
}

}  // namespace ramet::bench
