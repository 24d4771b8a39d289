#include "generation.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace ramet::guest {
namespace {

constexpr std::string_view kReport = "random: crng reseeded due to virtual machine fork";  // drivers/char/random.c

bool has_device_link(const char* dir) {
  DIR* d = ::opendir(dir);
  if (!d) return false;
  bool found = false;
  while (const dirent* entry = ::readdir(d))
    if (entry->d_type == DT_LNK && std::strcmp(entry->d_name, "module") != 0) found = true;
  ::closedir(d);
  return found;
}

}  // namespace

bool announces_generation(std::string_view record) {
  uint32_t priority = 0;
  const auto [end, error] = std::from_chars(record.data(), record.data() + record.size(), priority);
  const size_t text = record.find(';');
  constexpr uint32_t kFacilityShift = 3;
  return error == std::errc() && *end == ',' && (priority >> kFacilityShift) == 0 && text != std::string_view::npos &&
         record.substr(text + 1).starts_with(kReport);
}

GenerationWatch::GenerationWatch(Reactor& reactor) : log_(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (!log_) return;
  ::lseek(log_.get(), 0, SEEK_END);
  watch_ = reactor.watch(log_.get(), EPOLLIN, [this](uint32_t) { drain(); });
}

bool GenerationWatch::reliable() const {
  return log_ && (has_device_link("/sys/bus/platform/drivers/vmgenid") || has_device_link("/sys/bus/acpi/drivers/vmgenid"));
}

uint32_t GenerationWatch::changes() {
  drain();
  return changes_;
}

void GenerationWatch::drain() {
  if (!log_) return;
  const uint32_t before = changes_;
  char record[8192];  // CONSOLE_EXT_LOG_MAX
  for (;;) {
    const ssize_t n = ::read(log_.get(), record, sizeof record);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE) {
      changes_++;
      continue;
    }
    if (n <= 0) break;
    if (announces_generation({record, static_cast<size_t>(n)})) changes_++;
  }
  if (changes_ != before && on_change_) on_change_();
}

}  // namespace ramet::guest
