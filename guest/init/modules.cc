#include "init/modules.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"

namespace ramet::guest {
namespace {

Status load_module(const std::string& path) {
  TRY_ASSIGN(const UniqueFd file, open_file(path, O_RDONLY));
  if (::syscall(SYS_finit_module, file.get(), "", 0) < 0 && errno != EEXIST) return fail_errno("load " + path);
  return {};
}

}  // namespace

Status load_modules(const std::string& dir) {
  const Result<std::string> order = read_file(dir + "/order", 64u << 10);
  if (!order) return {};  // a kernel with everything built in
  Status first_failure;
  std::string_view rest = *order;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    if (line.empty() || line[0] == '#') continue;
    const Status loaded = load_module(dir + "/" + std::string(line));
    if (!loaded && first_failure) first_failure = loaded;
  }
  return first_failure;
}

}  // namespace ramet::guest
