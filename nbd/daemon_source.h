// daemon_source.h - an image of the daemon as a read-only disk whose connection is kept up: when the daemon ends, its reads
// wait, and go on when it is back; after `timeout` they fail, until it is back. Not here: what is said (image/chunk_client.h).
// Thread: as BlockSource. One of its own, `keeper`, which lives as long as this. Owner: the overlay stack over it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "image/chunked_source.h"

namespace ramet::nbd {

class DaemonSource final : public image::BlockSource {
 public:
  struct Where {
    std::string socket;
    std::string image;
    std::chrono::seconds timeout{0};
  };
  // Errors: kUnavailable (no daemon there), what the daemon answers (kNotFound), kCorrupt.
  static Result<std::unique_ptr<DaemonSource>> open(const Where& where);
  ~DaemonSource() override;

  // Other content has another number.
  uint64_t content_number() const { return welcome_.content; }
  uint64_t size_blocks() const override { return source_.size_blocks(); }
  Result<bool> read(image::BlockRange range, std::span<const iovec> to, image::Wait wait) const override {
    return source_.read(range, to, wait);
  }
  // Asks the daemon about a chunk that nothing is known of.
  Content content_at(image::BlockRange range) const override;

 private:
  DaemonSource(const Where& where, const image::Welcome& welcome, UniqueFd socket, UniqueFd stop);
  void keep_connected();
  bool stopped_within(int fd, Deadline deadline) const;
  void reconnect();

  const Where where_;
  const image::Welcome welcome_;
  image::ChunkedSource source_;
  UniqueFd stop_;       // readable: the keeper ends
  std::thread keeper_;  // last: uses all above
};

}  // namespace ramet::nbd
