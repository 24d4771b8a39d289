#include "host/images/remote_tier.h"

#include <pthread.h>

#include <algorithm>

#include "base/log.h"
#include "chunk/s3/s3_storage.h"

namespace ramet::host {

Result<std::unique_ptr<chunk::TieredStorage>> RemoteTier::behind(std::unique_ptr<chunk::PackStorage> local,
                                                                 RemoteTierOptions options) {
  TRY_ASSIGN(std::unique_ptr<chunk::s3::Client> client, chunk::s3::Client::create(std::move(options.place), {}));
  TRY_ASSIGN(std::unique_ptr<chunk::s3::S3Storage> remote,
             chunk::s3::S3Storage::create(std::move(client), std::move(options.prefix)));
  return std::make_unique<chunk::TieredStorage>(std::move(local), std::move(remote));
}

RemoteTier::RemoteTier(chunk::TieredStorage& packs, const RemoteTierOptions& options)
    : packs_(packs), local_bytes_(options.local_bytes), interval_(options.interval) {
  thread_ = std::thread([this] { loop(); });
  ::pthread_setname_np(thread_.native_handle(), "pack-upload");
}

RemoteTier::~RemoteTier() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    stopped_.notify_all();
  }
  thread_.join();
}

std::optional<Error> RemoteTier::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void RemoteTier::loop() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, interval_, [this] { return stop_; })) {
    lock.unlock();
    static_cast<void>(bring_up_to_date());
    lock.lock();
  }
}

Status RemoteTier::bring_up_to_date() {
  const Status done = look();
  const std::lock_guard lock(mutex_);
  if (!done && !trouble_) log_warn("remote tier: " + done.error().to_string());
  if (done && trouble_) log_info("remote tier: works again");
  trouble_ = done ? std::nullopt : std::optional(done.error());
  return done;
}

// The remote is asked only when there is something new here.
Status RemoteTier::look() {
  const std::lock_guard one_looks(working_);
  TRY_ASSIGN(std::vector<chunk::PackId> here, packs_.local());
  std::ranges::sort(here);
  if (here == settled_) return {};
  TRY(packs_.upload());
  TRY(trim());
  TRY_ASSIGN(settled_, packs_.local());
  std::ranges::sort(settled_);
  return {};
}

Status RemoteTier::trim() {
  if (local_bytes_ == UINT64_MAX) return {};
  TRY_ASSIGN(const std::vector<chunk::PackId> here, packs_.local());
  uint64_t kept = 0;
  for (const chunk::PackId& id : here) {
    TRY_ASSIGN(const uint64_t bytes, packs_.size_bytes(id));
    if (kept + bytes <= local_bytes_) {
      kept += bytes;
      continue;
    }
    const Status dropped = packs_.drop_local(id);
    // Written a moment ago, after the upload: its turn comes.
    if (!dropped && dropped.error().kind() != ErrorKind::kConflict) return dropped;
  }
  return {};
}

}  // namespace ramet::host
