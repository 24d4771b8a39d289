// base/place.h - errors of a full disk say which place is full: what fails deep down knows a descriptor, who called it the
// path. Thread: stateless.
#pragma once

#include <string_view>

#include "base/result.h"

namespace ramet {

// The answer; where it is that there is no room, and does not name the place, it begins with that.
template <class T>
[[nodiscard]] Result<T> naming(std::string_view place, Result<T> answer) {
  const bool says_too_little =
      !answer && answer.error().kind() == ErrorKind::kNoSpace && answer.error().message().find(place) == std::string::npos;
  if (!says_too_little) return answer;
  return tl::unexpected<Error>(std::move(answer).error().with_context(place));
}

}  // namespace ramet
