#include "fs_freezer.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace ramet::guest {
namespace {

int root_ioctl(unsigned long request) {
  const Result<UniqueFd> root = open_file("/", O_RDONLY | O_DIRECTORY);
  if (!root) return EIO;
  return ::ioctl(root->get(), request, 0) < 0 ? errno : 0;
}

}  // namespace

void FsFreezer::freeze(Nanoseconds deadline, Nanoseconds hold, Done done) {
  if (state_ != State::kThawed) return done(fail(ErrorKind::kConflict, "the file system is being frozen or frozen already"));
  const Status started = workers_.start(
      -1, [](int) { return root_ioctl(FIFREEZE); }, [this, hold](int err) { on_frozen(err, hold); });
  if (!started) return done(tl::unexpected<Error>(started.error()));
  state_ = State::kFreezing;
  done_ = std::move(done);
  began_at_ = MonotonicClock::now();
  timer_ = reactor_.after(deadline, [this] {
    state_ = State::kLate;
    answer(fail(ErrorKind::kNotQuiescent, "the file system could not be frozen before the deadline"));
  });
}

void FsFreezer::on_frozen(int err, Nanoseconds hold) {
  const bool late = state_ == State::kLate;
  timer_.cancel();
  if (err != 0) {
    state_ = State::kThawed;
    return answer(fail_errno("freeze the file system", err));
  }
  state_ = State::kFrozen;
  if (late) return thaw({});
  timer_ = reactor_.after(hold, [this] { thaw({}); });
  answer(MonotonicClock::now() - began_at_);
}

void FsFreezer::answer(Result<Nanoseconds> outcome) {
  Done done = std::move(done_);
  done_ = nullptr;
  if (done) done(std::move(outcome));
}

void FsFreezer::thaw(std::function<void(Status)> done) {
  const auto reply = [done](Status status) {
    if (done) done(std::move(status));
  };
  if (state_ == State::kThawed) return reply({});
  if (state_ != State::kFrozen) return reply(fail(ErrorKind::kConflict, "the file system is being frozen"));
  timer_.cancel();
  const Status started = workers_.start(
      -1, [](int) { return root_ioctl(FITHAW); },
      [this, reply](int err) {
        if (err == 0 || err == EINVAL) state_ = State::kThawed;  // EINVAL: somebody in the guest was faster
        reply(state_ == State::kThawed ? Status() : fail_errno("thaw the file system", err));
      });
  if (started) return;
  timer_ = reactor_.after(Milliseconds(100), [this] { thaw({}); });
  reply(started);
}

int sync_file_systems() {
  ::sync();
  return 0;
}

int drop_caches() {
  ::sync();
  for (const auto& [path, value] :
       {std::pair("/proc/sys/vm/drop_caches", "3"), std::pair("/proc/sys/vm/compact_memory", "1")}) {
    const Result<UniqueFd> file = open_file(path, O_WRONLY);
    if (!file) return file.error().err();
    if (!write_all(file->get(), as_bytes(value))) return EIO;
  }
  return 0;
}

}  // namespace ramet::guest
