#include "follow.h"

#include <algorithm>

#include "abi/frame.h"
#include "error_table.h"

namespace ramet::guest {
namespace {

constexpr size_t kMaxBacklogBytes = 4 * abi::kChunkBytes;

}  // namespace

Follow::Follow(Connection& connection, std::shared_ptr<Process> process, Mode mode, From from)
    : connection_(connection), process_(std::move(process)), mode_(mode), from_(from) {
  process_->add_follower(this);
}

Follow::~Follow() {
  *alive_ = false;
  process_->remove_follower(this);
}

void Follow::pump() {
  pump_again_ = true;
  if (pumping_) return;  // consuming output makes the process read on, which brings us here again
  pumping_ = true;
  while (pump_again_ && !connection_.finishing()) {
    pump_again_ = false;
    if (process_->state() == Process::State::kStarting) break;
    if (process_->state() != Process::State::kFailed && !started_sent_) {
      abi::Event event;
      event.mutable_started()->set_pid(static_cast<uint32_t>(process_->pid()));
      connection_.send(event);
      started_sent_ = true;
    }
    if (mode_ == Mode::kStream) send_output();
    const bool all_sent = mode_ == Mode::kOnlyStart || (process_->over() && process_->output().at_end(cursor));
    if (all_sent) send_end();
  }
  pumping_ = false;
}

void Follow::send_output() {
  bool consumed = false;
  while (connection_.backlog() < kMaxBacklogBytes) {
    const std::optional<OutputRing::Slice> slice = process_->output().read(cursor);
    if (!slice) break;
    consumed = true;
    const uint64_t wanted_from = slice->fd == 2 ? from_.stderr_offset : from_.stdout_offset;
    const uint64_t skip =
        wanted_from > slice->offset ? std::min<uint64_t>(wanted_from - slice->offset, slice->bytes.size()) : 0;
    if (skip == slice->bytes.size()) continue;
    abi::Event event;
    abi::Output* output = event.mutable_output();
    output->set_fd(slice->fd);
    output->set_offset(slice->offset + skip);
    output->set_bytes(slice->bytes.data() + skip, slice->bytes.size() - skip);
    connection_.send(event);
  }
  if (consumed) process_->on_consumed();
}

void Follow::send_end() {
  if (process_->state() == Process::State::kFailed) {
    abi::Event event;
    *event.mutable_result()->mutable_error() = process_->start_error();
    connection_.send(event);
  } else {
    abi::Event event = success_event();
    if (mode_ == Mode::kStream) *event.mutable_result()->mutable_exit() = process_->exit();
    connection_.send(event);
  }
  connection_.finish();
}

void Follow::on_input(const abi::Input& input) {
  switch (input.kind_case()) {
    case abi::Input::kSignal:
      if (input.signal() > 0 && input.signal() <= 64)
        (void)process_->signal(static_cast<int>(input.signal()), false).has_value();
      return;
    case abi::Input::kResize: (void)process_->resize(input.resize()).has_value(); return;
    case abi::Input::kData: {
      // Input for a command that reads no more is dropped, as a shell does with a pipe.
      if (!process_->write_stdin(input.data().bytes(), input.data().eof()) || process_->stdin_backlog() == 0) return;
      connection_.set_reading(false);
      process_->when_stdin_drained([this, alive = alive_] {
        if (*alive) connection_.set_reading(true);
      });
      return;
    }
    case abi::Input::KIND_NOT_SET: return;
  }
}

}  // namespace ramet::guest
