// How fast the device moves bytes, next to what the same bytes cost through a socketpair alone. The guest's side is the fake
// driver, so the numbers have its ring handling in them.
#include <benchmark/benchmark.h>
#include <sys/socket.h>

#include "vmm/devices/vsock/guest_fake.h"

namespace ramet::vmm {
namespace {

struct World {
  World() : loop(std::move(*EventLoop::create())), guest(device) {
    device.use_loop(*loop);
    guest.start();
    device.connect(1024, deadline_after(std::chrono::seconds(5)), [this](Result<UniqueFd> r) { host = std::move(*r); });
    run();
    stream.host_port = guest.receive()->packet.src_port;
    stream.guest_port = 1024;
    guest.send(stream.packet(vsock::Op::kResponse));
    run();
  }
  void run() { loop->run_once(MonotonicClock::time_point{}); }

  std::unique_ptr<EventLoop> loop;
  VsockDevice device;
  VsockGuestFake guest;
  GuestStream stream;
  UniqueFd host;
};

void host_to_guest(benchmark::State& state) {
  World w;
  const std::string block(static_cast<size_t>(state.range(0)), 'h');
  int64_t packets = 0;
  for (auto _ : state) {
    if (::send(w.host.get(), block.data(), block.size(), MSG_DONTWAIT) != static_cast<ssize_t>(block.size())) abort();
    w.run();
    for (size_t got = 0; got < block.size();) {
      const std::optional<Delivery> d = w.guest.receive();
      if (!d) {
        w.run();
        continue;
      }
      packets++;
      got += d->payload.size();
      w.stream.received += static_cast<uint32_t>(d->payload.size());
    }
    w.guest.send(w.stream.packet(vsock::Op::kCreditUpdate));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
  state.counters["packets"] = benchmark::Counter(static_cast<double>(packets), benchmark::Counter::kIsRate);
}
BENCHMARK(host_to_guest)->Arg(64)->Arg(65536);

void guest_to_host(benchmark::State& state) {
  World w;
  const std::string block(static_cast<size_t>(state.range(0)), 'g');
  std::string back(block.size(), 0);
  for (auto _ : state) {
    w.guest.send(w.stream.packet(vsock::Op::kRw, static_cast<uint32_t>(block.size())), block);
    if (::recv(w.host.get(), back.data(), back.size(), MSG_DONTWAIT | MSG_WAITALL) != static_cast<ssize_t>(back.size()))
      abort();
    while (w.guest.receive()) {
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(guest_to_host)->Arg(64)->Arg(65536);

void socketpair_alone(benchmark::State& state) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) abort();
  const UniqueFd a(ends[0]), b(ends[1]);
  const std::string block(static_cast<size_t>(state.range(0)), 's');
  std::string back(4096, 0);
  for (auto _ : state) {
    if (::send(a.get(), block.data(), block.size(), MSG_DONTWAIT) != static_cast<ssize_t>(block.size())) abort();
    for (size_t got = 0; got < block.size();)
      got += static_cast<size_t>(::recv(b.get(), back.data(), back.size(), MSG_DONTWAIT));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(socketpair_alone)->Arg(64)->Arg(65536);

}  // namespace
}  // namespace ramet::vmm

BENCHMARK_MAIN();
