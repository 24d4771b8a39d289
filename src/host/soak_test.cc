// A whole Host that works for long: collections without a pause beside boots, forks, imports and removals; a parent that is
// forked a thousand times. The guests (tests/guests/keeper) check their disks on their own and end when a block is wrong.
// RAMET_SOAK=1: the full numbers.
#include <cstdio>
#include <cstdlib>
#include <deque>

#include "chunk/testing/contents.h"
#include "host/images/images.h"
#include "host/testing/keeper_test.h"

namespace ramet::host {
namespace {

using testing::keeper_disk;
using testing::names_in;

int effort(int full, int brief) { return std::getenv("RAMET_SOAK") ? full : brief; }

class SoakTest : public testing::KeeperTest {
 protected:
  std::vector<std::string> chain_of(const std::string& id) { return *(*Registry::open(root_ + "/state/ramet.db"))->chain(id); }
};

// ---- collections during boots ----

class CollectionSoakTest : public SoakTest {
 protected:
  // Collects without a pause while `work` goes on.
  template <class Work>
  uint64_t collecting_during(const Work& work) {
    std::atomic<bool> stop{false};
    std::thread collector([&] {
      for (; !stop; collections_++) EXPECT_TRUE(host_->images().store().collect());
    });
    std::thread importer([&] {
      for (uint64_t i = 0; !stop; i++) import_and_remove(i);
    });
    work();
    stop = true;
    importer.join();
    collector.join();
    return collections_;
  }
  // One whole collection that begins after this does; sooner only where none comes for long.
  void wait_for_a_collection() {
    const uint64_t wanted = collections_ + 2;
    for (int i = 0; i < 400 && collections_ < wanted; i++) std::this_thread::sleep_for(Milliseconds(5));
  }
  HostOptions store_options() {
    HostOptions options = testing::tiny_options(root_);
    options.fill_after_misses = 0;  // every read of a base is one of the store
    return options;
  }
  // A version of an image comes, is read, and the one before goes, while somebody who has it open has yet to read it.
  void import_and_remove(uint64_t i) {
    const auto disk = [](uint64_t version) { return keeper_disk(500 + version); };
    const auto name = [](uint64_t version) { return "image-" + std::to_string(version); };
    const auto expect_bytes = [&](ImageDownload& download, uint64_t version) -> Status {
      TRY_ASSIGN(const std::span<const std::byte> bytes, download.next());
      EXPECT_TRUE(std::ranges::equal(bytes, as_bytes(disk(version)))) << name(version);
      return {};
    };
    const auto import = [&]() -> Status {
      TRY_ASSIGN(const std::unique_ptr<ImageUpload> upload, host_->images().upload(name(i)));
      TRY(upload->write(as_bytes(disk(i))));
      TRY(upload->finish({.format = "raw", .parent = i == 0 ? "" : name(i - 1)}));
      TRY_ASSIGN(const std::unique_ptr<ImageDownload> download, host_->images().download(name(i)));
      TRY(expect_bytes(*download, i));
      if (i == 0) return {};
      TRY_ASSIGN(const std::unique_ptr<ImageDownload> before, host_->images().download(name(i - 1)));
      TRY(host_->images().remove(name(i - 1)));
      wait_for_a_collection();
      return expect_bytes(*before, i - 1);
    };
    const Status done = import();
    EXPECT_TRUE(done) << done.error().to_string();
  }
  // A template comes, boots, and goes while its machine and two branches of it run on.
  std::vector<std::string> boot_and_fork(int round) {
    const std::string name = "template-" + std::to_string(round);
    upload(name, static_cast<uint64_t>(round));
    const SandboxInfo booted = create(name);
    EXPECT_TRUE(host_->remove_template(name));
    std::vector<std::string> ids{booted.id};
    wait_passes(booted.id, 1);
    for (const SandboxInfo& child : fork(booted.id, 2).children) ids.push_back(child.id);
    for (const std::string& id : ids) wait_passes(id, 1);
    return ids;
  }
  void remove_all(const std::vector<std::string>& ids) {
    for (const std::string& id : ids) EXPECT_TRUE(host_->remove(id));
  }

  std::atomic<uint64_t> collections_{0};
};

TEST_F(CollectionSoakTest, NothingThatGuestsReadIsCollected) {
  const int rounds = effort(200, 4);
  ASSERT_NO_FATAL_FAILURE(reopen(store_options()));
  constexpr size_t kMostFamilies = 3;
  std::deque<std::vector<std::string>> families;
  const uint64_t collections = collecting_during([&] {
    for (int round = 0; round < rounds && !HasFatalFailure(); round++) {
      families.push_back(boot_and_fork(round));
      if (families.size() <= kMostFamilies) continue;
      for (const std::string& id : families.front()) wait_passes(id, 1);
      remove_all(families.front());
      families.pop_front();
    }
  });
  for (const std::vector<std::string>& ids : families) {
    for (const std::string& id : ids) wait_passes(id, 1);
    remove_all(ids);
  }
  EXPECT_TRUE(settled_overlays(0).empty());
  const uint64_t failed = host_->images().report()->failed;
  ASSERT_NO_FATAL_FAILURE(reopen(store_options()));  // a daemon that starts looks for disks that nobody needs
  for (int i = 0; i < 200 && host_->images().report()->template_disks != 0; i++) std::this_thread::sleep_for(Milliseconds(20));
  ASSERT_TRUE(host_->images().store().collect());
  const std::vector<ImageInfo> images = *host_->images().list();
  ASSERT_EQ(images.size(), 1u) << "the last one imported";
  const StoreReport report = *host_->images().report();
  std::printf("%d boots and %d forks beside %llu collections; at the end %llu bytes of packs for %llu alive\n", rounds, rounds,
              static_cast<unsigned long long>(collections), static_cast<unsigned long long>(report.pack_bytes),
              static_cast<unsigned long long>(images[0].stored_bytes));
  EXPECT_EQ(report.template_disks, 0u);
  EXPECT_EQ(failed, 0u);
  EXPECT_LE(report.pack_bytes, images[0].stored_bytes * 3 / 2);
}

// ---- many forks of one parent ----

class ForkSoakTest : public SoakTest {
 protected:
  struct Counts {
    size_t chain = 0, overlay_files = 0, parent_descriptors = 0, daemon_descriptors = 0;
    void raise_to(const Counts& other) {
      chain = std::max(chain, other.chain);
      overlay_files = std::max(overlay_files, other.overlay_files);
      parent_descriptors = std::max(parent_descriptors, other.parent_descriptors);
      daemon_descriptors = std::max(daemon_descriptors, other.daemon_descriptors);
    }
    void print(const char* when) const {
      std::printf(
          "%s: %zu overlays in the parent's chain, %zu overlay files, descriptors: %zu of the parent, %zu of the daemon\n",
          when, chain, overlay_files, parent_descriptors, daemon_descriptors);
    }
  };
  Counts count(const std::string& parent, pid_t pid) {
    return {chain_of(parent).size(), names_in(root_ + "/state/overlays").size(),
            names_in("/proc/" + std::to_string(pid) + "/fd").size(), names_in("/proc/self/fd").size()};
  }
  // Whether the parent wrote since its last fork: the overlay it has for that has a block in its map log.
  void wait_written(const std::string& parent) {
    const std::string log = root_ + "/state/overlays/" + chain_of(parent).back() + ".log";
    std::error_code ec;
    const auto before = std::filesystem::file_size(log, ec);
    for (int i = 0; i < 2000 && std::filesystem::file_size(log, ec) <= before; i++)
      std::this_thread::sleep_for(Milliseconds(1));
  }
};

TEST_F(ForkSoakTest, ManyForksOfOneParentLeaveFewOverlaysAndDescriptors) {
  const int forks = effort(1000, 60);
  constexpr int kReadEvery = 25;  // this child's disk is looked at, then it ends; the others end at once
  const HostOptions options = testing::tiny_options(root_);
  // Those that may be frozen, and the writable one. Merging takes place in the background while forks go on, so that there may
  // be more at times; past the layers that a monitor takes, forks would fail.
  const size_t longest = options.longest_overlay_chain + 1, most_chain = 250;
  ASSERT_NO_FATAL_FAILURE(reopen(options));
  ASSERT_NO_FATAL_FAILURE(upload("keeper", 0));
  const SandboxInfo parent = create("keeper");
  wait_passes(parent.id, 1);
  const pid_t pid = pid_of(parent.id);
  const Counts before = count(parent.id, pid);
  before.print("before");
  Counts most;
  for (int i = 1; i <= forks; i++) {
    wait_written(parent.id);
    const ForkResult forked = fork(parent.id);
    ASSERT_EQ(forked.children.size(), 1u);
    if (i % kReadEvery == 0) {
      ASSERT_NO_FATAL_FAILURE(wait_passes(forked.children[0].id, 2));
    }
    ASSERT_TRUE(host_->remove(forked.children[0].id));
    const Counts now = count(parent.id, pid);
    most.raise_to(now);
    if (i % (forks / 4) == 0) now.print(("after " + std::to_string(i) + " forks").c_str());
  }
  most.print("at most");
  EXPECT_LE(most.chain, most_chain);
  EXPECT_LE(most.parent_descriptors, before.parent_descriptors + 2 * most_chain);

  Counts end = count(parent.id, pid);
  const auto settled = [&] {
    return end.chain <= longest && end.overlay_files <= 2 * (longest + 1) &&
           end.daemon_descriptors <= before.daemon_descriptors;
  };
  for (int i = 0; i < 1200 && !settled(); i++) {
    std::this_thread::sleep_for(Milliseconds(25));
    end = count(parent.id, pid);
  }
  wait_passes(parent.id, 2);  // what it stands on now is right
  end.print("at the end");
  EXPECT_TRUE(settled());
}

}  // namespace
}  // namespace ramet::host
