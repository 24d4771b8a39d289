// guest/testing/agent_client.h - the real agent program on a unix socket, and a blocking client for it. For tests only.
// Thread: one per client.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "abi/agent.pb.h"
#include "abi/frame.h"
#include "base/child_process.h"
#include "base/unique_fd.h"

namespace ramet::guest {

// What a sanitizer may keep beside the program's own memory: its quarantine of freed blocks.
#ifdef __SANITIZE_ADDRESS__
inline constexpr uint64_t kSanitizerBytes = 512u << 20;
#else
inline constexpr uint64_t kSanitizerBytes = 0;
#endif

// Starts `ramet-guest --serve-unix` in a directory of its own; ends it in the destructor.
class TestAgent {
 public:
  // With `cgroup`, commands live in a cgroup of that name under the first cgroup v2 mount.
  explicit TestAgent(const std::string& cgroup = "");
  ~TestAgent();
  bool ready() const { return ready_; }
  pid_t pid() const { return process_->pid(); }
  const std::string& dir() const { return dir_; }
  UniqueFd connect() const;
  size_t open_descriptors() const;
  // It can open no more than it has, until the limit is lifted.
  void limit_descriptors() const;
  void lift_limit_of_descriptors() const;
  Milliseconds cpu_time() const;
  size_t children() const;  // zombies included
  uint64_t peak_memory_bytes() const;
  uint64_t peak_memory_of_children_bytes() const;  // the largest

 private:
  std::string dir_;
  std::optional<ChildProcess> process_;
  bool ready_ = false;
};

// Where cgroup v2 is mounted and may be written; empty when nowhere.
std::string writable_cgroup2();

// One connection.
class Call {
 public:
  explicit Call(UniqueFd fd) : fd_(std::move(fd)) {}
  explicit Call(const TestAgent& agent) : Call(agent.connect()) {}
  Call(const TestAgent& agent, const abi::Request& request) : Call(agent) { send(request); }

  bool send(const abi::Request& request);
  bool send(const abi::Input& input);
  bool send_raw(std::string_view bytes);
  bool send_data(std::string_view bytes, bool eof);
  // Nothing when the agent closed, or stayed silent for the time given.
  std::optional<abi::Event> next(Milliseconds patience = Milliseconds(20'000));
  void hang_up() { fd_.reset(); }
  int fd() const { return fd_.get(); }

  // Reads up to the result.
  struct Outcome {
    bool complete = false;  // a result came
    uint32_t pid = 0;
    std::string out, err, data;
    std::vector<abi::FileInfo> files;
    abi::Result result;
  };
  Outcome finish();

 private:
  UniqueFd fd_;
  abi::FrameBuffer input_;
};

Call::Outcome call(const TestAgent& agent, const abi::Request& request);
abi::Request shell(const std::string& line);

}  // namespace ramet::guest
