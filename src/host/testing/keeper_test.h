// host/testing/keeper_test.h - a whole Host with guests that check their disks and what they know of them on their own
// (tests/guests/keeper), and end when something is wrong; nobody needs to ask them, so that the daemon may stay.
// Not in the product. Thread: one test.
#pragma once

#include <algorithm>
#include <cstring>

#include "chunk/testing/contents.h"
#include "host/testing/host_test.h"

namespace ramet::host::testing {

inline constexpr size_t kKeeperBlockBytes = 4096, kKeeperBlocks = 256;

// As the keeper wants it. Of two disks with seeds that differ by one the most blocks are the same.
inline std::string keeper_disk(uint64_t seed) {
  std::string disk(kKeeperBlocks * kKeeperBlockBytes, '\0');
  for (uint64_t block = 1; block < kKeeperBlocks; block++) {
    const uint64_t version = 1'000'000 + (seed + block % 16) / 16 * 16;
    std::vector<std::byte> noise = chunk::testing::noise(kKeeperBlockBytes, version << 16 | block);
    const auto set = [&](size_t word, uint64_t value) { std::memcpy(noise.data() + 8 * word, &value, sizeof value); };
    set(0, version);
    set(1, block);
    set(511, ~version);
    std::memcpy(disk.data() + block * kKeeperBlockBytes, noise.data(), kKeeperBlockBytes);
  }
  return disk;
}

class KeeperTest : public HostTest {
 protected:
  void reopen(const HostOptions& options) {
    host_.reset();
    options_ = options;
    open();
  }
  void upload(const std::string& name, uint64_t seed) {
    const Status uploaded = upload_tiny(*host_, name, "keeper", keeper_disk(seed));
    ASSERT_TRUE(uploaded) << uploaded.error().to_string();
  }
  size_t passes(const std::string& id) {
    const Result<std::string> console = host_->logs(id);
    return console ? static_cast<size_t>(std::ranges::count(*console, '\n')) : 0;
  }
  // Until the guest went over its whole disk `more` times from now on.
  void wait_passes(const std::string& id, size_t more) {
    const size_t wanted = passes(id) + more;
    for (int i = 0; i < 6000 && passes(id) < wanted; i++) {
      ASSERT_EQ(host_->get(id)->state, SandboxState::kRunning) << "a block of its disk was wrong";
      std::this_thread::sleep_for(Milliseconds(5));
    }
    ASSERT_GE(passes(id), wanted) << "the guest of " << id << " does not get on";
  }
};

}  // namespace ramet::host::testing
