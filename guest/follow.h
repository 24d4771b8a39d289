// guest/follow.h - Exec and Attach from the connection's side: sends Started, replays and streams output at the pace of the
// host, feeds input, ends with Exit. Several connections may follow one command. Not here: the command (process.h). Thread: the
// reactor's.
#pragma once

#include <memory>

#include "process.h"
#include "session.h"

namespace ramet::guest {

class Follow final : public Operation, public Process::Follower {
 public:
  enum class Mode { kStream, kOnlyStart };
  struct From {
    uint64_t stdout_offset = 0, stderr_offset = 0;
  };

  // `process` is shared with the table: the table may forget a finished command while a slow host still reads from it.
  Follow(Connection& connection, std::shared_ptr<Process> process, Mode mode, From from);
  ~Follow() override;

  void on_progress() override { pump(); }
  void on_drained() override { pump(); }
  void on_input(const abi::Input& input) override;
  void pump();

 private:
  void send_output();
  void send_end();

  Connection& connection_;
  std::shared_ptr<Process> process_;
  const Mode mode_;
  const From from_;
  bool started_sent_ = false;
  bool pumping_ = false;
  bool pump_again_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // outlives us in the callback given to the process
};

}  // namespace ramet::guest
