// bench/must.h - a benchmark stops at the first call that failed: a measurement with a hole in it is worth nothing.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "base/result.h"

namespace ramet::bench {

[[noreturn]] inline void die(const std::string& why) {
  std::fprintf(stderr, "benchmark: %s\n", why.c_str());
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) die(result.error().to_string());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace ramet::bench
