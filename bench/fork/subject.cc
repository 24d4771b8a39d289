#include "fork/subject.h"

#include "guests/lib/protocol.h"

namespace ramet::bench {
namespace {

using vmtest::Vm;

constexpr Milliseconds kPatience(120'000);  // an interpreting KVM needs seconds for a large write
constexpr uint64_t kPagesPerMiB = 256;
constexpr uint64_t kBlockPages = 512;  // zero parts are found by 2 MiB

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

class RametSubject final : public Subject {
 public:
  static Result<std::unique_ptr<Subject>> make(const BaseShape& shape) {
    std::unique_ptr<RametSubject> self(new RametSubject);
    vmtest::BootOptions options;
    options.kernel = vmtest::guest_path("dirty");
    options.memory_mib = shape.ram_mib;
    TRY_ASSIGN(std::unique_ptr<Vm> builder, Vm::boot(options));
    builder->set_patience(kPatience);
    TRY(builder->wait_for_kind(guests::kReady, deadline_after(kPatience)));
    TRY(builder->command(guests::kSetStart, static_cast<uint32_t>(shape.fill_start_mib * kPagesPerMiB)));
    TRY(builder->command(guests::kSetStride, kBlockPages));
    TRY(builder->command(guests::kWrite, static_cast<uint32_t>(shape.fill_mib * kPagesPerMiB / kBlockPages)));
    TRY_ASSIGN(vmtest::Image image, builder->capture());
    builder.reset();
    TRY_ASSIGN(self->zygote_, Vm::zygote(image));
    return self;
  }

  Status fresh_machine() override {
    TRY(end_children());
    lineage_.clear();
    TRY_ASSIGN(std::unique_ptr<Vm> machine, fork_of(*zygote_));
    lineage_.push_back(std::move(machine));
    return {};
  }

  Status descend() override {
    TRY_ASSIGN(std::unique_ptr<Vm> child, fork_of(*lineage_.back()));
    lineage_.push_back(std::move(child));
    return {};
  }

  Result<uint32_t> command(uint32_t kind, uint32_t value) override { return lineage_.back()->command(kind, value); }

  Result<ForkSample> fork() override {
    Vm& parent = *lineage_.back();
    std::vector<vmtest::PreparedChild> prepared;
    TRY_ASSIGN(vmtest::PreparedChild one, parent.prepare_child());
    prepared.push_back(std::move(one));
    const int64_t start = monotonic_ns();
    TRY_ASSIGN(vmtest::ForkOutcome outcome, parent.fork(std::move(prepared)));
    if (!outcome.failures.empty()) return tl::unexpected<Error>(outcome.failures.front());
    TRY_ASSIGN(int64_t first_exit, first_report(*outcome.children.front()));
    children_.push_back(std::move(outcome.children.front()));
    const vmm::Forked& t = outcome.timing;
    return ForkSample{ms(first_exit - start), ms(t.resumed_at_ns() - t.stopped_at_ns()),
                      ms(t.fork_end_ns() - t.fork_begin_ns())};
  }

  Status end_children() override {
    children_.clear();
    return {};
  }

 private:
  // Every branch reports by itself once it runs again.
  static Result<int64_t> first_report(Vm& vm) {
    for (;;) {
      TRY_ASSIGN(vmm::Event event, vm.next_event(deadline_after(kPatience)));
      if (event.has_debug_port()) return event.debug_port().at_ns();
      if (event.has_ended()) return fail(ErrorKind::kUnavailable, "the child ended: " + event.ended().reason());
    }
  }

  static Result<std::unique_ptr<Vm>> fork_of(Vm& parent) {
    TRY_ASSIGN(std::unique_ptr<Vm> child, parent.fork_one());
    child->set_patience(kPatience);
    TRY(first_report(*child));
    return child;
  }

  std::unique_ptr<Vm> zygote_;
  std::vector<std::unique_ptr<Vm>> lineage_;  // the last one is the present machine
  std::vector<std::unique_ptr<Vm>> children_;
};

class FloorSubject final : public Subject {
 public:
  explicit FloorSubject(FloorClient client) : client_(std::move(client)) {}
  Status fresh_machine() override { return client_.restart(); }
  Status descend() override { return client_.descend(); }
  Result<uint32_t> command(uint32_t kind, uint32_t value) override { return client_.command(kind, value); }
  Status end_children() override { return client_.end_children(); }
  Result<ForkSample> fork() override {
    const int64_t start = monotonic_ns();
    TRY_ASSIGN(FloorClient::Fork fork, client_.fork());
    return ForkSample{ms(static_cast<int64_t>(fork.child.at_ns) - start), ms(static_cast<int64_t>(fork.parent.stop_ns)),
                      ms(static_cast<int64_t>(fork.parent.fork_ns))};
  }

 private:
  FloorClient client_;
};

}  // namespace

Result<std::unique_ptr<Subject>> make_ramet(const BaseShape& shape) { return RametSubject::make(shape); }

Result<std::unique_ptr<Subject>> make_floor(const BaseShape& shape) {
  TRY_ASSIGN(FloorClient client, FloorClient::start(shape, vmtest::guest_path("dirty")));
  return std::make_unique<FloorSubject>(std::move(client));
}

}  // namespace ramet::bench
