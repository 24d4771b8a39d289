// domains/rank_test.h - whether two series of samples differ, whatever shape their noise has (Mann and Whitney's test): every
// sample of one beside every sample of the other. Not here: percentiles (report.h). Thread: pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace ramet::bench {

struct RankTest {
  double share_less;  // of all pairs, those in which the sample of `a` is the smaller one; 0.5: no difference
  double z;           // the same in standard deviations of what chance makes of equal ones
};

// Requires: none is empty; hardly any samples are equal.
inline RankTest rank_test(const std::vector<double>& a, std::vector<double> b) {
  std::ranges::sort(b);
  double less = 0;
  for (const double sample : a) {
    const auto [first, last] = std::ranges::equal_range(b, sample);
    less += static_cast<double>(b.end() - last) + static_cast<double>(last - first) / 2;
  }
  const double n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  return {less / (n * m), (less - n * m / 2) / std::sqrt(n * m * (n + m + 1) / 12)};
}

}  // namespace ramet::bench
