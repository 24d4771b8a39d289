#include "testing/agent_client.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/socket.h"

namespace ramet::guest {
namespace {

std::string proc(pid_t pid, const char* what) { return "/proc/" + std::to_string(pid) + "/" + what; }

void set_limit_of_descriptors(pid_t pid, rlim_t count) {
  rlimit limit{};
  ::prlimit(pid, RLIMIT_NOFILE, nullptr, &limit);
  limit.rlim_cur = count;
  ::prlimit(pid, RLIMIT_NOFILE, &limit, nullptr);
}

std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream in(proc(pid, ("task/" + std::to_string(pid) + "/children").c_str()));
  std::vector<pid_t> children;
  for (pid_t child; in >> child;) children.push_back(child);
  return children;
}

uint64_t peak_of(pid_t pid) {
  std::ifstream in(proc(pid, "status"));
  for (std::string word; in >> word;)
    if (word == "VmHWM:") {
      uint64_t kib = 0;
      in >> kib;
      return kib * 1024;
    }
  return 0;
}

bool wait_for_line(int fd) {
  char line[64];
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 10'000) > 0 && ::read(fd, line, sizeof line) > 0;
}

}  // namespace

TestAgent::TestAgent(const std::string& cgroup) {
  char dir[] = "/tmp/ramet-agent-XXXXXX";
  if (!::mkdtemp(dir)) return;
  dir_ = dir;
  Result<Pipe> out = make_pipe();
  if (!out) return;
  SpawnOptions options;
#ifndef RAMET_GUEST_PROGRAM
#define RAMET_GUEST_PROGRAM "ramet-guest"
#endif
  options.argv = {RAMET_GUEST_PROGRAM, "--serve-unix", dir_ + "/socket"};
  if (!cgroup.empty()) options.argv.insert(options.argv.end(), {"--cgroup", cgroup});
  options.stdout_fd = out->write_end.get();
  Result<ChildProcess> process = ChildProcess::spawn(options);
  if (!process) return;
  process_ = std::move(*process);
  out->write_end.reset();
  ready_ = wait_for_line(out->read_end.get());
}

TestAgent::~TestAgent() {
  if (process_) {
    (void)process_->signal(SIGTERM).has_value();
    process_->wait(deadline_after(Milliseconds(5000)));
  }
  std::error_code ignored;
  if (!dir_.empty()) std::filesystem::remove_all(dir_, ignored);
}

UniqueFd TestAgent::connect() const {
  Result<UniqueFd> fd = connect_unix(dir_ + "/socket", SOCK_STREAM);
  return fd ? std::move(*fd) : UniqueFd();
}

size_t TestAgent::open_descriptors() const {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(proc(pid(), "fd"))) n++;
  return n;
}

void TestAgent::limit_descriptors() const {
  rlim_t lowest_free = 0;
  while (std::filesystem::is_symlink(proc(pid(), "fd/") + std::to_string(lowest_free))) lowest_free++;
  set_limit_of_descriptors(pid(), lowest_free);
}

void TestAgent::lift_limit_of_descriptors() const { set_limit_of_descriptors(pid(), 1024); }

Milliseconds TestAgent::cpu_time() const {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid(), &clock) != 0 || ::clock_gettime(clock, &used) != 0) return Milliseconds::max();
  return Milliseconds(used.tv_sec * 1000 + used.tv_nsec / 1'000'000);
}

size_t TestAgent::children() const { return children_of(pid()).size(); }

uint64_t TestAgent::peak_memory_bytes() const { return peak_of(pid()); }

uint64_t TestAgent::peak_memory_of_children_bytes() const {
  uint64_t peak = 0;
  for (const pid_t child : children_of(pid())) peak = std::max(peak, peak_of(child));
  return peak;
}

std::string writable_cgroup2() {
  for (const char* dir : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    const std::string file = std::string(dir) + "/cgroup.procs";
    if (::access(file.c_str(), W_OK) == 0 && ::access((std::string(dir) + "/cgroup.subtree_control").c_str(), F_OK) == 0)
      return dir;
  }
  return "";
}

bool Call::send(const abi::Request& request) {
  std::string wire;
  return abi::append_frame(request, wire) && send_raw(wire);
}

bool Call::send(const abi::Input& input) {
  std::string wire;
  return abi::append_frame(input, wire) && send_raw(wire);
}

bool Call::send_data(std::string_view bytes, bool eof) {
  abi::Input input;
  input.mutable_data()->set_bytes(bytes.data(), bytes.size());
  input.mutable_data()->set_eof(eof);
  return send(input);
}

bool Call::send_raw(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::optional<abi::Event> Call::next(Milliseconds patience) {
  const Deadline deadline = deadline_after(patience);
  for (;;) {
    if (const std::optional<std::string_view> message = input_.next()) {
      abi::Event event;
      if (!event.ParseFromArray(message->data(), static_cast<int>(message->size()))) return std::nullopt;
      return event;
    }
    pollfd p{fd_.get(), POLLIN, 0};
    if (::poll(&p, 1, static_cast<int>(time_left(deadline).count())) <= 0) return std::nullopt;
    char buffer[65536];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return std::nullopt;
    input_.feed(buffer, static_cast<size_t>(n));
  }
}

Call::Outcome Call::finish() {
  Outcome outcome;
  while (std::optional<abi::Event> event = next()) {
    if (event->has_started()) outcome.pid = event->started().pid();
    if (event->has_output()) (event->output().fd() == 2 ? outcome.err : outcome.out) += event->output().bytes();
    if (event->has_data()) outcome.data += event->data().bytes();
    for (const abi::FileInfo& file : event->entries().files()) outcome.files.push_back(file);
    if (!event->has_result()) continue;
    outcome.complete = true;
    outcome.result = event->result();
    break;
  }
  return outcome;
}

Call::Outcome call(const TestAgent& agent, const abi::Request& request) { return Call(agent, request).finish(); }

abi::Request shell(const std::string& line) {
  abi::Request request;
  request.mutable_exec()->set_shell(line);
  return request;
}

}  // namespace ramet::guest
