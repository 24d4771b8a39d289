#include "host/resources.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/socket.h"

namespace ramet::host {

Result<MachineFiles> Resources::prepare(const std::string& id, const std::string& family, uint64_t family_memory_max,
                                        const std::string& overlay_id) const {
  MachineFiles f;
  TRY(make_directories(paths.machine_dir(id), 0700));
  TRY_ASSIGN(f.console, open_file(paths.console(id), O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  TRY_ASSIGN(f.listen, listen_unix(paths.socket(id), SOCK_SEQPACKET, 4));
  if (!overlay_id.empty()) {
    TRY_ASSIGN(f.overlay, overlays.create(overlay_id));
  }
  TRY(cgroups.make_family(family, FamilyLimits{family_memory_max}));
  TRY(cgroups.make_leaf(family, id, LeafLimits{}));
  return f;
}

void Resources::release(const std::string& id, const std::string& family, bool keep_console) const {
  ::unlink(paths.socket(id).c_str());
  std::error_code ec;
  if (!keep_console) std::filesystem::remove_all(paths.machine_dir(id), ec);
  if (ec) log_warn("directory of " + id + " stays: " + ec.message());
  const Status gone = cgroups.remove_leaf(family, id);
  if (!gone) log_warn(gone.error().to_string());
}

Result<std::string> Resources::console_text(const std::string& id, uint64_t limit) const {
  TRY_ASSIGN(const UniqueFd fd, open_file(paths.console(id), O_RDONLY | O_NOFOLLOW));
  TRY_ASSIGN(const uint64_t size, file_size(fd.get()));
  const uint64_t take = std::min(size, limit);
  std::string text(take, '\0');
  size_t have = 0;
  while (have < take) {  // the guest writes meanwhile: a shorter file is not an error
    const ssize_t n = ::pread(fd.get(), text.data() + have, take - have, static_cast<off_t>(size - take + have));
    if (n <= 0) break;
    have += static_cast<size_t>(n);
  }
  text.resize(have);
  return text;
}

}  // namespace ramet::host
