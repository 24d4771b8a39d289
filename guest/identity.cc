#include "identity.h"

#include <fcntl.h>
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/file.h"

namespace ramet::guest {
namespace {

constexpr int kPoolBits = 256;                      // what the kernel counts a full pool as
constexpr int64_t kClockToleranceNs = 100'000'000;  // less is the way from the host; stepping back by it would be worse

Status write_in_place(const std::string& path, const std::string& content) {
  TRY_ASSIGN(const UniqueFd file, open_file(path, O_WRONLY | O_TRUNC));
  return write_all(file.get(), as_bytes(content));
}

Status set_wall_clock(int64_t wanted_ns, abi::Identified& done) {
  const int64_t delta = wanted_ns - wall_ns();
  done.set_clock_delta_ns(delta);
  if (delta < kClockToleranceNs && delta > -kClockToleranceNs) return {};
  timespec ts{};
  ts.tv_sec = wanted_ns / 1'000'000'000;
  ts.tv_nsec = wanted_ns % 1'000'000'000;
  if (::clock_settime(CLOCK_REALTIME, &ts) < 0) return fail_errno("set the wall clock");
  done.set_clock_stepped(true);
  return {};
}

}  // namespace

Status validate(const abi::Identify& r) {
  if (r.entropy().size() < kMinEntropyBytes || r.entropy().size() > kMaxEntropyBytes)
    return fail(ErrorKind::kInvalid, "identify: " + std::to_string(r.entropy().size()) + " bytes of entropy, must be " +
                                         std::to_string(kMinEntropyBytes) + " to " + std::to_string(kMaxEntropyBytes));
  const auto host_char = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '.'; };
  if (r.hostname().size() > 64 || !std::all_of(r.hostname().begin(), r.hostname().end(), host_char))
    return fail(ErrorKind::kInvalid, "identify: \"" + r.hostname() + "\" is not a host name of at most 64 characters");
  const auto hex_char = [](unsigned char c) { return std::isdigit(c) || (c >= 'a' && c <= 'f'); };
  if (!r.machine_id().empty() &&
      (r.machine_id().size() != 32 || !std::all_of(r.machine_id().begin(), r.machine_id().end(), hex_char)))
    return fail(ErrorKind::kInvalid, "identify: machine id \"" + r.machine_id() + "\" is not 32 lower-case hex digits");
  if (r.wall_clock_ns() < 0) return fail(ErrorKind::kInvalid, "identify: the wall clock is before 1970");
  return {};
}

Status reseed(const std::string& entropy) {
  TRY_ASSIGN(const UniqueFd random, open_file("/dev/urandom", O_RDWR));
  // struct rand_pool_info: bits, bytes, data.
  std::vector<int> info(2 + (entropy.size() + sizeof(int) - 1) / sizeof(int));
  info[0] = static_cast<int>(std::min<size_t>(entropy.size() * 8, kPoolBits));
  info[1] = static_cast<int>(entropy.size());
  std::memcpy(&info[2], entropy.data(), entropy.size());
  if (::ioctl(random.get(), RNDADDENTROPY, info.data()) < 0) return fail_errno("credit entropy");
  if (::ioctl(random.get(), RNDRESEEDCRNG) < 0) return fail_errno("reseed the kernel's random numbers");
  int credited = 0;
  if (::ioctl(random.get(), RNDGETENTCNT, &credited) < 0) return fail_errno("count entropy");
  if (credited < kPoolBits)
    return fail(ErrorKind::kPermission, "the kernel credits " + std::to_string(credited) + " bits of entropy, needed are 256");
  char probe[16];
  if (::getrandom(probe, sizeof probe, GRND_NONBLOCK) != sizeof probe) return fail_errno("draw a random number");
  return {};
}

Status apply_identity(const abi::Identify& request, Nanoseconds age, abi::Identified& done) {
  if (!request.hostname().empty() && ::sethostname(request.hostname().data(), request.hostname().size()) < 0)
    return fail_errno("set the host name");
  if (!request.machine_id().empty()) TRY(write_in_place(kMachineIdFile, request.machine_id() + "\n"));
  if (request.wall_clock_ns() != 0) TRY(set_wall_clock(request.wall_clock_ns() + age.count(), done));
  return {};
}

bool name_service_knows_host() {
  const Result<std::string> switches = read_file("/etc/nsswitch.conf", 64u << 10);
  return switches && switches->find("myhostname") != std::string::npos;
}

int update_hosts_file(const std::string& hostname) {
  constexpr std::string_view kMark = "  # set by ramet";
  const Result<std::string> hosts = read_file("/etc/hosts", 1u << 20);
  std::string kept;
  std::string_view rest = hosts ? std::string_view(*hosts) : "127.0.0.1 localhost\n::1 localhost ip6-localhost\n";
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (!line.ends_with(kMark)) kept.append(line).append("\n");
  }
  kept.append("127.0.1.1 ").append(hostname).append(kMark).append("\n");
  if (hosts && kept == *hosts) return 0;
  // Not synced: a name need not survive a crash, and a flush at every birth would cost every fork a write.
  const std::string temporary = "/etc/.hosts.ramet";
  const Result<UniqueFd> file = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (!file || !write_all(file->get(), as_bytes(kept))) return 1;
  return ::rename(temporary.c_str(), "/etc/hosts") == 0 ? 0 : 1;
}

}  // namespace ramet::guest
