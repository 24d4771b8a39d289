// What a disk does to a store: power that fails at any step of put, commit and collection, a process that is killed there, a
// disk that is full at any write.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>

#include "chunk/directory_storage.h"
#include "chunk/maintenance.h"
#include "chunk/store.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/recorded_disk.h"

namespace ramet::chunk {
namespace {

using testing::blocks;
using testing::Bytes;
using testing::RecordedDisk;
using testing::set_block;

// Thousands of small files: in memory.
struct MemoryDirectory {
  MemoryDirectory() {
    std::string pattern = "/dev/shm/ramet-chunk-XXXXXX";
    path = ::mkdtemp(pattern.data());
    std::filesystem::create_directory(path + "/packs");
  }
  ~MemoryDirectory() { std::filesystem::remove_all(path); }
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;
  std::string path;
};

Result<std::unique_ptr<Store>> open_store(const std::string& directory) {
  TRY_ASSIGN(std::unique_ptr<DirectoryStorage> packs, DirectoryStorage::open(directory + "/packs"));
  return Store::open(std::move(packs), directory + "/index.db", {});
}

size_t packs_in(const std::string& directory) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/packs")) n += entry.path().filename() != "lock";
  return n;
}

// The life of a store, and what of it must be there when.
class History {
 public:
  explicit History(const std::string& directory, RecordedDisk& disk) : directory_(directory), disk_(disk) {}
  struct Promise {
    Bytes bytes;
    size_t from = 0, until = SIZE_MAX;  // steps of the disk
  };
  const std::map<Digest, Promise>& promises() const { return promises_; }

  // Every step may fail for want of space, once; done again it succeeds.
  void live() {
    step([&] { return open(); });
    Bytes disk = blocks(0, 12);
    for (uint64_t day = 0; day < 3; day++) {
      set_block(disk, day, 700 + day);
      step([&] { return commit({disk, blocks(100 + 20 * day, 6)}); });
    }
    step([&] { return dropped(); });
    give_up(1);
    step([&] { return collect(); });
    for (uint64_t i = 0; i < 10; i++) set_block(disk, i, 800 + i);
    step([&] { return commit({disk, blocks(100, 6)}); });
    give_up(3);
    step([&] { return collect(); });
    store_.reset();
    ASSERT_GT(moved_, 0u);
    ASSERT_GT(removed_, 0u);
  }

  uint64_t refused = 0;

 private:
  void step(const std::function<Status()>& action) {
    Status done = action();
    if (!done) {
      refused++;
      ASSERT_EQ(done.error().kind(), ErrorKind::kNoSpace) << done.error().to_string();
      if (store_) expect_whole();
      disk_.have_room();
      done = action();
    }
    ASSERT_TRUE(done) << done.error().to_string();
  }
  void expect_whole() {
    for (const auto& [digest, promise] : promises_)
      if (promise.until == SIZE_MAX) {
        const Result<Bytes> got = store_->get(digest);
        ASSERT_TRUE(got) << got.error().to_string();
        ASSERT_EQ(*got, promise.bytes);
      }
  }

  Status open() {
    store_.reset();
    TRY_ASSIGN(store_, open_store(directory_));
    return {};
  }
  Status commit(const std::vector<Bytes>& chunks) {
    Batch batch = store_->begin();
    for (const Bytes& chunk : chunks) TRY(batch.put(chunk, last_));
    TRY(batch.commit());
    for (const Bytes& chunk : chunks) promises_[digest_of(chunk)] = {chunk, disk_.steps()};
    last_ = digest_of(chunks[0]);
    order_.push_back(*last_);
    return {};
  }
  // A pack of its own is on the disk already when it goes.
  Status dropped() {
    Batch batch = store_->begin();
    TRY(batch.put(blocks(3000, 6)));
    return {};
  }
  void give_up(size_t snapshots) {
    for (size_t i = 0; i < snapshots && i < order_.size(); i++) {
      Promise& promise = promises_.at(order_[i]);
      promise.until = std::min(promise.until, disk_.steps());
    }
  }
  Status collect() {
    TRY_ASSIGN(const Store::Collected done, store_->collect([&]() -> Result<Store::LiveSet> {
      Store::LiveSet live;
      for (const auto& [digest, promise] : promises_)
        if (promise.until == SIZE_MAX) live.chunks.insert(digest);
      return live;
    }));
    moved_ += done.packs_written;
    removed_ += done.packs_removed;
    return {};
  }

  const std::string directory_;
  RecordedDisk& disk_;
  std::unique_ptr<Store> store_;
  std::map<Digest, Promise> promises_;
  std::vector<Digest> order_;
  std::optional<Digest> last_;
  uint64_t moved_ = 0, removed_ = 0;  // packs
};

// Opens, has all that was promised by then, and nothing half.
void expect_sound(const std::string& directory, const History& history, size_t steps) {
  const Result<std::unique_ptr<Store>> store = open_store(directory);
  ASSERT_TRUE(store) << store.error().to_string();
  for (const auto& [digest, promise] : history.promises()) {
    const Result<Bytes> got = (*store)->get(digest);
    const bool promised = promise.from <= steps && steps <= promise.until;
    ASSERT_TRUE(got || (!promised && got.error().kind() == ErrorKind::kNotFound)) << got.error().to_string();
    if (got) {
      ASSERT_EQ(*got, promise.bytes);
    }
  }
  const VerifyReport report = verify(**store).value();
  ASSERT_TRUE(report.problems.empty()) << report.problems[0].where << ": " << report.problems[0].error.to_string();
  ASSERT_EQ(packs_in(directory), (*store)->totals()->packs) << "a pack that nobody knows";
}

struct Loss {
  const char* name;
  RecordedDisk::Unsynced unsynced;
  size_t every;  // of the steps, without RAMET_SOAK
};
void PrintTo(const Loss& loss, std::ostream* out) { *out << loss.name; }

class LossTest : public ::testing::TestWithParam<Loss> {};

TEST_P(LossTest, AfterEveryStepTheStoreIsSound) {
  const MemoryDirectory place;
  RecordedDisk disk(place.path);
  History history(place.path, disk);
  history.live();
  ASSERT_GT(history.promises().size(), 6u);
  const size_t every = std::getenv("RAMET_SOAK") ? 1 : GetParam().every;
  for (size_t steps = 0; steps <= disk.steps(); steps += every) {
    const MemoryDirectory after;
    disk.leave(steps, GetParam().unsynced, steps, after.path);
    ASSERT_NO_FATAL_FAILURE(expect_sound(after.path, history, steps)) << "after " << steps << " steps of " << disk.steps();
  }
}

// Everything there is what kill -9 leaves.
INSTANTIATE_TEST_SUITE_P(Disk, LossTest,
                         ::testing::Values(Loss{"Killed", RecordedDisk::Unsynced::kIsThere, 1},
                                           Loss{"PowerLostAll", RecordedDisk::Unsynced::kIsLost, 1},
                                           Loss{"PowerLostSome", RecordedDisk::Unsynced::kIsThereInPart, 1}),
                         [](const ::testing::TestParamInfo<Loss>& loss) { return loss.param.name; });

TEST(FullDisk, AtAnyWriteIsAClearErrorAndPasses) {
  uint64_t writes = 0;
  {
    const MemoryDirectory place;
    RecordedDisk disk(place.path);
    History history(place.path, disk);
    history.live();
    EXPECT_EQ(history.refused, 0u);
    writes = disk.writes();
  }
  const uint64_t every = std::getenv("RAMET_SOAK") ? 1 : 3;
  uint64_t refused = 0;
  for (uint64_t first = 0; first < writes; first += every) {
    const MemoryDirectory place;
    RecordedDisk disk(place.path);
    History history(place.path, disk);
    disk.be_full_from_write(first);
    ASSERT_NO_FATAL_FAILURE(history.live()) << "full from write " << first << " of " << writes;
    disk.have_room();
    ASSERT_NO_FATAL_FAILURE(expect_sound(place.path, history, disk.steps())) << "full from write " << first;
    refused += history.refused;
  }
  EXPECT_GT(refused, writes / every / 2);
}

}  // namespace
}  // namespace ramet::chunk
