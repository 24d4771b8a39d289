#include <algorithm>
#include <array>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>

#include <boost/json.hpp>

#include "api/exec_events.h"
#include "api/handlers.h"
#include "api/live_commands.h"
#include "api/render.h"
#include "api/requests.h"
#include "api/utf8.h"
#include "base/file.h"
#include "base/log.h"

namespace ramet::api {
namespace {

namespace json = boost::json;

// How often a silent command's caller is looked after.
constexpr Milliseconds kTick{500};
constexpr std::chrono::seconds kPingAfter{15};
// A command that does not read its input for so long has lost its writer.
constexpr std::chrono::minutes kStdinWait{10};
constexpr Milliseconds kEndWait{2000};
constexpr size_t kMaxKeptOutput = 8u << 20;

// Nobody waits for the command any more: end it, first politely.
void end_command(host::ExecStream& stream) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (!stream.send_signal(static_cast<uint32_t>(signal))) return;
    const Deadline deadline = deadline_after(kEndWait);
    while (time_left(deadline).count() > 0) {
      const Result<std::optional<host::ExecEvent>> event = stream.next(deadline);
      if (!event && event.error().kind() == ErrorKind::kTimeout) break;
      if (!event || !*event || (*event)->kind == host::ExecEvent::Kind::kExit) return;
    }
  }
}

enum class WhenClientGoes { kEndCommand, kLeaveCommand };
enum class Pumped { kEnded, kClientGone, kStopping };

// Gives every event to `sink` until the command ended or nobody listens any more. `silence` is called at every quiet tick.
// Errors: those of the stream; what the sink returns.
template <class Sink, class Silence>
Result<Pumped> pump(Exchange& exchange, host::ExecStream& stream, Sink sink, Silence silence) {
  while (true) {
    Result<std::optional<host::ExecEvent>> event = stream.next(deadline_after(kTick));
    if (event && !*event) return Pumped::kEnded;
    if (event) {
      TRY(sink(**event));
      continue;
    }
    if (event.error().kind() != ErrorKind::kTimeout) return tl::unexpected(event.error());
    if (exchange.client_gone()) return Pumped::kClientGone;
    if (exchange.stopping()) return Pumped::kStopping;
    TRY(silence());
  }
}

Error stopping_error() {
  return Error(ErrorKind::kUnavailable, "the daemon is stopping; the command goes on")
      .with_hint("Attach to it by GET .../processes/{pid}/output when the daemon is back.");
}

Status stream_events(Call& call, host::ExecStream& stream, ExecEventEncoder encoder, WhenClientGoes when_gone,
                     const std::function<void(uint32_t pid)>& on_started = nullptr) {
  Exchange& exchange = call.exchange;
  TRY(exchange.begin_stream({200, "application/x-ndjson", "", {{"Cache-Control", "no-store"}}}));
  Deadline next_ping = deadline_after(kPingAfter);
  bool client_lost = false;
  const auto send = [&](const std::string& lines) -> Status {
    next_ping = deadline_after(kPingAfter);
    const Status sent = exchange.write(as_bytes(lines));
    client_lost = !sent;
    return sent;
  };
  const Result<Pumped> end = pump(
      exchange, stream,
      [&](const host::ExecEvent& event) {
        if (event.kind == host::ExecEvent::Kind::kStarted && on_started) on_started(event.pid);
        return send(encoder.encode(event));
      },
      [&]() -> Status { return MonotonicClock::now() < next_ping ? Status() : send(ExecEventEncoder::ping()); });
  if (end && *end == Pumped::kEnded) return exchange.end_stream();
  if (client_lost && exchange.stopping()) return tl::unexpected(stopping_error());
  if (client_lost || (end && *end == Pumped::kClientGone)) {
    if (when_gone == WhenClientGoes::kEndCommand) end_command(stream);
    return fail(ErrorKind::kCancelled, "the client went away");
  }
  TRY(exchange.write(as_bytes(encoder.encode_error(end ? stopping_error() : end.error(), exchange.request_id()))));
  return exchange.end_stream();
}

// The newest bytes of an output, at most kMaxKeptOutput.
struct KeptOutput {
  std::string bytes;
  bool truncated = false;

  void add(std::string_view more) {
    bytes += more;
    if (bytes.size() <= 2 * kMaxKeptOutput) return;  // cut rarely: each cut moves what is kept
    cut();
  }
  void cut() {
    if (bytes.size() <= kMaxKeptOutput) return;
    bytes.erase(0, bytes.size() - kMaxKeptOutput);
    truncated = true;
  }
  void render(json::object& into, std::string_view name) {
    cut();
    const std::string key(name);
    if (is_utf8(bytes)) {
      into[key] = bytes;
    } else {
      into[key] = base64_encode(bytes);
      into[key + "_encoding"] = "base64";
    }
    into[key + "_truncated"] = truncated;
  }
};

Status collect_result(Call& call, host::ExecStream& stream) {
  KeptOutput out, err;
  json::object result;
  uint32_t pid = 0;
  bool exited = false;
  const Result<Pumped> end = pump(
      call.exchange, stream,
      [&](const host::ExecEvent& event) -> Status {
        using Kind = host::ExecEvent::Kind;
        if (event.kind == Kind::kStarted) pid = event.pid;
        if (event.kind == Kind::kStdout) out.add(event.data);
        if (event.kind == Kind::kStderr) err.add(event.data);
        if (event.kind == Kind::kExit) {
          exited = true;
          add_exit(result, event.exit);
        }
        return {};
      },
      []() -> Status { return {}; });
  if (!end) return tl::unexpected(end.error());
  if (*end == Pumped::kClientGone) {
    end_command(stream);
    return fail(ErrorKind::kCancelled, "the client went away");
  }
  if (*end == Pumped::kStopping) return tl::unexpected(stopping_error());
  if (!exited) return fail(ErrorKind::kUnavailable, "the sandbox ended before the command did");
  out.render(result, "stdout");
  err.render(result, "stderr");
  result["pid"] = pid;
  return call.exchange.respond(json_response(200, result));
}

Status answer_detached(Call& call, host::ExecStream& stream) {
  uint32_t pid = 0;
  const Result<Pumped> end = pump(
      call.exchange, stream,
      [&](const host::ExecEvent& event) -> Status {
        if (event.kind == host::ExecEvent::Kind::kStarted) pid = event.pid;
        return {};
      },
      []() -> Status { return {}; });
  if (!end) return tl::unexpected(end.error());
  return call.exchange.respond(json_response(202, {{"pid", pid}}));
}

}  // namespace

Status exec(Call& call) {
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const ExecRequest request, decode_exec(body));
  TRY_ASSIGN(const std::shared_ptr<host::ExecStream> stream, call.host().exec(call.id(), request.options));
  if (request.options.detach) return answer_detached(call, *stream);

  // Input is written beside reading output, else a command that answers while it reads would stop at a full pipe.
  std::jthread feeder;
  if (!request.stdin_bytes.empty()) {
    feeder = std::jthread([&] {
      const Status written = stream->write_stdin(request.stdin_bytes, deadline_after(kStdinWait));
      if (written && !request.keep_stdin_open) (void)stream->close_stdin();
    });
  }
  uint32_t live_pid = 0;
  const auto started = [&](uint32_t pid) {
    live_pid = pid;
    call.context.live.add(call.id(), pid, stream);
  };
  const Status done = request.stream
                          ? stream_events(call, *stream, ExecEventEncoder(0, 0), WhenClientGoes::kEndCommand, started)
                          : collect_result(call, *stream);
  if (live_pid != 0) call.context.live.remove(call.id(), live_pid);
  stream->cancel();  // wakes the feeder when the command ended without reading its input
  return done;
}

Status list_processes(Call& call) {
  TRY_ASSIGN(const std::vector<host::ProcessInfo> processes, call.host().processes(call.id()));
  json::array list;
  for (const host::ProcessInfo& p : processes) list.push_back(to_json(p));
  return call.exchange.respond(json_response(200, {{"processes", std::move(list)}}));
}

Status attach_process(Call& call) {
  TRY_ASSIGN(const uint32_t pid, decode_pid(call.path["pid"]));
  TRY_ASSIGN(const uint64_t out, decode_offset(call.target.get("stdout_offset"), "stdout_offset"));
  TRY_ASSIGN(const uint64_t err, decode_offset(call.target.get("stderr_offset"), "stderr_offset"));
  TRY_ASSIGN(const std::unique_ptr<host::ExecStream> stream, call.host().attach(call.id(), pid, out, err));
  return stream_events(call, *stream, ExecEventEncoder(out, err), WhenClientGoes::kLeaveCommand);
}

Status write_stdin(Call& call) {
  TRY_ASSIGN(const uint32_t pid, decode_pid(call.path["pid"]));
  TRY_ASSIGN(const bool eof, call.target.flag("eof"));
  call.exchange.set_body_timeout(std::nullopt);  // a person may think before typing
  const std::shared_ptr<host::ExecStream> live = call.context.live.find(call.id(), pid);
  const auto write = [&](std::string_view bytes, bool last) -> Status {
    if (!live) return call.host().write_stdin(call.id(), pid, bytes, last, deadline_after(kStdinWait));
    return last ? live->close_stdin() : live->write_stdin(bytes, deadline_after(kStdinWait));
  };
  std::array<std::byte, 64 * 1024> piece;
  while (true) {
    TRY_ASSIGN(const size_t n, call.exchange.read_body(piece));
    if (n == 0) break;
    TRY(write(std::string_view(reinterpret_cast<const char*>(piece.data()), n), false));
  }
  if (eof) TRY(write("", true));
  return answer_nothing(call.exchange);
}

Status signal_process(Call& call) {
  TRY_ASSIGN(const uint32_t pid, decode_pid(call.path["pid"]));
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const uint32_t signal, decode_signal(body));
  TRY(call.host().send_signal(call.id(), pid, signal));
  return answer_nothing(call.exchange);
}

Status resize_terminal(Call& call) {
  TRY_ASSIGN(const uint32_t pid, decode_pid(call.path["pid"]));
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const host::WindowSize size, decode_terminal_size(body));
  TRY(call.host().resize(call.id(), pid, size));
  return answer_nothing(call.exchange);
}

}  // namespace ramet::api
