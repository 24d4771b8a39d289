#include "base/half_replaced.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace ramet {

void remove_half_replaced(const std::string& directory) {
  constexpr std::string_view kMark = ".tmp.";  // and the pid
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    const size_t at = name.rfind(kMark);
    if (at == std::string::npos) continue;
    const std::string pid = name.substr(at + kMark.size());
    if (pid.empty() || pid.size() > 9 || pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (::kill(std::atoi(pid.c_str()), 0) < 0 && errno == ESRCH) ::unlink(entry.path().c_str());
  }
}

}  // namespace ramet
