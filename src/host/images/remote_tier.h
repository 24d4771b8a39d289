// host/images/remote_tier.h - the place behind the packs of this host: a bucket of an S3-compatible server. A pack lands here
// and is brought there in the background; once it is there, its local copy may be given up for room, and is then read there,
// frame by frame. Not here: names and manifests, which stay on this host; the protocol (chunk/s3).
// Thread: one of its own; the methods from any. Owner: ImageStore; must go before the storage.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "chunk/s3/client.h"
#include "chunk/tiered_storage.h"

namespace ramet::host {

struct RemoteTierOptions {
  chunk::s3::Place place;
  std::string prefix = "ramet";
  uint64_t local_bytes = UINT64_MAX;  // of packs that stay here although they are there
  Milliseconds interval{5'000};       // between looks for packs that are not there yet
};

class RemoteTier {
 public:
  // The local packs in front of the bucket. Asks nothing of the server.   Errors: kInvalid (endpoint, bucket, prefix).
  static Result<std::unique_ptr<chunk::TieredStorage>> behind(std::unique_ptr<chunk::PackStorage> local,
                                                              RemoteTierOptions options);

  RemoteTier(chunk::TieredStorage& packs, const RemoteTierOptions& options);
  ~RemoteTier();
  RemoteTier(const RemoteTier&) = delete;
  RemoteTier& operator=(const RemoteTier&) = delete;

  // Afterwards every pack written before the call is durable there, and what is too much is gone here.
  Status bring_up_to_date();
  // The last time failed, for this reason.
  std::optional<Error> trouble() const;

 private:
  void loop();
  Status look();
  Status trim();

  chunk::TieredStorage& packs_;
  const uint64_t local_bytes_;
  const Milliseconds interval_;
  std::mutex working_;                  // one look at a time; held over the network
  std::vector<chunk::PackId> settled_;  // guarded by working_: the local packs, all of them uploaded
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;             // guarded by mutex_
  std::optional<Error> trouble_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace ramet::host
