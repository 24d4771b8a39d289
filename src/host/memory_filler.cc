#include "host/memory_filler.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/seals.h"
#include "base/userfault.h"
#include "host/crash_point.h"

namespace ramet::host {
namespace {

constexpr Milliseconds kTryAgain{250};

std::string file_name(const std::string& image, bool even) {
  return "ramet-memory-" + std::string(even ? "even-" : "odd-") + image;
}

Result<UniqueFd> make_memory_file(const std::string& image, bool even, uint64_t bytes) {
  TRY_ASSIGN(UniqueFd fd, make_memfd(file_name(image, even).c_str(), bytes));
  if (::fchmod(fd.get(), 0400) < 0) return fail_errno("chmod of a memory file");
  return fd;
}

// By its name, which cannot be changed. One that a process made itself, under our name, is nobody's but its own.
Result<UniqueFd> open_memory_file(const std::string& dir, const std::string& name) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) != "/memfd:" + name + " (deleted)") continue;
    // Its owner may change the mode, and not everybody is above it.
    TRY_ASSIGN(const UniqueFd reading, open_file(entry.path(), O_RDONLY));
    if (::fchmod(reading.get(), 0600) < 0) return fail_errno("chmod of memory file " + name);
    Result<UniqueFd> writing = reopen(reading.get(), O_RDWR);
    if (::fchmod(reading.get(), 0400) < 0) return fail_errno("chmod of memory file " + name);
    return writing;
  }
  return fail(ErrorKind::kNotFound, "the process has no memory file " + name);
}

}  // namespace

Status seal_memory_files(const MemoryFilePair& files) {
  TRY(seal_file(files.even.get()));
  return seal_file(files.odd.get());
}

Result<MemoryFilePair> make_memory_files(const std::string& image, uint64_t ram_bytes) {
  MemoryFilePair files;
  TRY_ASSIGN(files.even, make_memory_file(image, true, ram_bytes));
  TRY_ASSIGN(files.odd, make_memory_file(image, false, ram_bytes));
  return files;
}

Result<MemoryFilePair> open_memory_files(pid_t pid, const std::string& image) {
  const std::string dir = "/proc/" + std::to_string(pid) + "/fd";
  MemoryFilePair files;
  TRY_ASSIGN(files.even, open_memory_file(dir, file_name(image, true)));
  TRY_ASSIGN(files.odd, open_memory_file(dir, file_name(image, false)));
  return files;
}

bool is_complete(const MemoryFilePair& files) { return is_sealed(files.even.get()) && is_sealed(files.odd.get()); }

MemoryFiller::MemoryFiller(Content content, MemoryFill mode) : content_(std::move(content)) {
  note_if_complete();  // nothing but zeros
  if (mode == MemoryFill::kOnDemand) rest_ = std::thread([this] { fill_rest(); });
}

std::shared_ptr<MemoryFiller> MemoryFiller::start(Content content, MemoryFill mode) {
  return std::shared_ptr<MemoryFiller>(new MemoryFiller(std::move(content), mode));
}

MemoryFiller::~MemoryFiller() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (rest_.joinable()) rest_.join();
}

bool MemoryFiller::complete() const {
  const std::lock_guard lock(mutex_);
  return complete_;
}

Status MemoryFiller::wait_complete(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_until(lock, deadline, [&] { return complete_; })) return {};
  return fail(ErrorKind::kTimeout, "the memory of " + content_.image +
                                       " is not all here yet: " + std::to_string(missing_chunks()) + " of " +
                                       std::to_string(content_.fill->total_chunks()) + " chunks are missing");
}

bool MemoryFiller::claim(const std::string& family) {
  const std::lock_guard lock(mutex_);
  if (complete_) return true;
  if (family_.empty()) family_ = family;
  return family_ == family;
}

// After every chunk: whoever brought the last one seals.
void MemoryFiller::note_if_complete() {
  if (!content_.fill->complete()) return;
  const std::lock_guard lock(mutex_);
  if (complete_) return;
  if (const Status sealed = seal_memory_files(content_.files); !sealed)
    return log_error(content_.image + ": " + sealed.error().to_string());
  content_.files = {};
  content_.hold.reset();
  complete_ = true;
  changed_.notify_all();
}

void MemoryFiller::note_trouble(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!trouble_) log_error("memory of " + content_.image + ", which machines run on: " + error.to_string());
  trouble_ = error;
}

void MemoryFiller::note_no_trouble() {
  const std::lock_guard lock(mutex_);
  trouble_.reset();
}

std::optional<Error> MemoryFiller::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void MemoryFiller::fill_rest() {
  const auto stopped = [&](Milliseconds wait) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, wait, [&] { return stop_ || complete_; });
  };
  while (!stopped(Milliseconds(0))) {
    const Result<std::optional<uint64_t>> done = content_.fill->fill_next();
    crash_point("fill.rest");
    if (!done) {
      note_trouble(done.error());
      stopped(kTryAgain);
    } else if (*done) {
      note_no_trouble();
      note_if_complete();
    } else {  // the others are fetched by those that wait for them, or failed
      content_.fill->start_over();
      stopped(Milliseconds(50));
    }
  }
}

Result<std::unique_ptr<MemoryFiller::Faults>> MemoryFiller::serve(UniqueFd userfault, uint64_t ram_address) {
  if (!is_userfault(userfault.get())) return fail(ErrorKind::kCorrupt, "the monitor sent something else for its faults");
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop) return fail_errno("eventfd");
  return std::unique_ptr<Faults>(new Faults(shared_from_this(), std::move(userfault), ram_address, std::move(stop)));
}

// ---- the faults of one machine ----

MemoryFiller::Faults::Faults(std::shared_ptr<MemoryFiller> filler, UniqueFd userfault, uint64_t ram_address, UniqueFd stop)
    : filler_(std::move(filler)),
      userfault_(std::move(userfault)),
      ram_address_(ram_address),
      stop_(std::move(stop)),
      thread_([this] { answer(); }) {}

MemoryFiller::Faults::~Faults() {
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

// True: it is over.
bool MemoryFiller::Faults::wait_a_moment() const {
  pollfd stop{stop_.get(), POLLIN, 0};
  return ::poll(&stop, 1, static_cast<int>(kTryAgain.count())) > 0;
}

void MemoryFiller::Faults::answer() {
  for (;;) {
    // One more look after all is there: who waits may have found a page missing just before it came. Who is later still goes on
    // when the monitor lets go of its descriptor.
    const bool last = filler_->complete();
    pollfd wanted[2] = {{userfault_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(wanted, 2, last ? 0 : static_cast<int>(kTryAgain.count())) < 0 && errno != EINTR) return;
    // Its monitor made it a descriptor that blocks: nobody waits for that.
    if (wanted[1].revents != 0 || (wanted[0].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return;
    if ((wanted[0].revents & POLLIN) == 0) {
      if (last) return;
      continue;
    }
    const Result<std::optional<uint64_t>> address = next_fault(userfault_.get());
    if (!address) return log_warn("memory of " + filler_->content_.image + ": " + address.error().to_string());
    if (*address && !answer_one(**address)) return;
  }
}

// False: nobody wants more.
bool MemoryFiller::Faults::answer_one(uint64_t address) {
  if (address < ram_address_) return true;  // none of its memory, whatever it is
  const uint64_t offset = address - ram_address_;
  for (;;) {
    const Status there = filler_->content_.fill->need(offset);
    if (there) break;
    if (there.error().kind() == ErrorKind::kInvalid) return true;  // likewise
    filler_->note_trouble(there.error());
    if (wait_a_moment()) return false;
  }
  crash_point("fill.fault");
  filler_->note_no_trouble();
  filler_->note_if_complete();
  constexpr uint64_t kChunk = commit::DemandFill::kChunk;
  const Status woken = wake_faults(userfault_.get(), ram_address_ + offset / kChunk * kChunk, kChunk);
  return woken.has_value() || woken.error().err() == EAGAIN;
}

}  // namespace ramet::host
