// Memory that comes while it is used: this process takes the part of the machines, whose mappings are private ones of the
// files.
#include "host/memory_filler.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "base/userfault.h"
#include "commit/testing/memory_fixture.h"

namespace ramet::host {
namespace {

using chunk::testing::noise;

constexpr uint64_t kMiB = 1ull << 20, kRam = 32 * kMiB, kPage = 4096, kChunk = commit::DemandFill::kChunk;
constexpr char kImage[] = "sn-test";

class MemoryFillerTest : public commit::testing::MemoryFixture {
 protected:
  void SetUp() override {
    const Result<UniqueFd> device = open_userfault_device();
    if (!device) GTEST_SKIP() << device.error().to_string();
    MemoryFixture::SetUp();
    // Every third block is zero.
    root_ = image_with_noise(kRam, [](uint64_t block) { return block % 3 != 1; });
  }
  // As the monitor does it.
  struct Mapped {
    std::vector<MappedRegion> pieces;
    std::span<std::byte> memory;
    UniqueFd userfault;
    uint64_t address() const { return reinterpret_cast<uint64_t>(memory.data()); }
  };
  Mapped map(const MemoryFilePair& files, const image::ZeroMap& zeros) {
    Mapped out;
    // Safety: address space of our own; every piece is mapped over it below.
    out.pieces.push_back(MappedRegion::map(kRam, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE).value());
    out.memory = {out.pieces.back().data(), kRam};
    out.userfault = create_userfault(open_userfault_device().value().get()).value();
    for (const image::RamPiece& piece : zeros.pieces()) {
      const UniqueFd reading =
          piece.anonymous ? UniqueFd() : ramet::reopen((piece.file == 0 ? files.even : files.odd).get(), O_RDONLY).value();
      const int flags = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED | (piece.anonymous ? MAP_ANONYMOUS : 0);
      // Safety: within the region above.
      void* const p = ::mmap(out.memory.data() + piece.offset, piece.length, PROT_READ | PROT_WRITE, flags, reading.get(),
                             piece.anonymous ? 0 : static_cast<off_t>(piece.offset));
      EXPECT_NE(p, MAP_FAILED);
      if (!piece.anonymous) {
        EXPECT_TRUE(watch_faults(out.userfault.get(), out.memory.subspan(piece.offset, piece.length)));
      }
    }
    return out;
  }
  std::unique_ptr<commit::DemandFill> fill_of(const MemoryFilePair& files, const std::vector<uint32_t>& first = {}) {
    image::Manifest manifest = commit::manifest_in(*store_, root_);
    zeros_ = image::zero_map_of(manifest).value();
    return commit::DemandFill::make(manifest, *store_, zeros_, files.even.get(), files.odd.get(), first).value();
  }
  MemoryFilePair new_files() { return make_memory_files(kImage, kRam).value(); }
  void start(MemoryFill mode, const std::vector<uint32_t>& first = {}) {
    MemoryFilePair files = new_files();
    std::unique_ptr<commit::DemandFill> fill = fill_of(files, first);
    mapped_ = map(files, zeros_);
    filler_ = MemoryFiller::start({kImage, std::move(files), std::move(fill), nullptr}, mode);
  }
  void serve() { faults_ = filler_->serve(UniqueFd(::dup(mapped_.userfault.get())), mapped_.address()).value(); }
  // What the monitor does when the files are sealed.
  void let_go() {
    faults_.reset();
    mapped_.userfault.reset();
  }
  std::byte byte_of(uint64_t offset) {
    const uint64_t block = offset / image::kRamBlockBytes;
    if (block % 3 == 1) return std::byte{0};
    return noise(image::kRamBlockBytes, block + 1)[offset % image::kRamBlockBytes];
  }
  void expect_all_right() {
    for (uint64_t block = 0; block < kRam / image::kRamBlockBytes; block++) {
      const std::span<const std::byte> there = mapped_.memory.subspan(block * image::kRamBlockBytes, image::kRamBlockBytes);
      const bool zero = block % 3 == 1;
      EXPECT_TRUE(std::ranges::equal(there, zero ? chunk::testing::Bytes(there.size()) : noise(there.size(), block + 1)))
          << "block " << block;
    }
  }
  static std::future<std::byte> reads(const std::byte& b) {
    return std::async(std::launch::async, [&b] { return static_cast<const volatile std::byte&>(b); });
  }
  static bool waits(const std::future<std::byte>& reader) {
    return reader.wait_for(Milliseconds(100)) == std::future_status::timeout;
  }

  image::ManifestRoot root_;
  image::ZeroMap zeros_{kRam};
  Mapped mapped_;
  std::shared_ptr<MemoryFiller> filler_;
  std::unique_ptr<MemoryFiller::Faults> faults_;
};

TEST_F(MemoryFillerTest, WhatIsTouchedComesAndNothingElse) {
  start(MemoryFill::kOnlyOnDemand);
  serve();
  const uint64_t all = filler_->missing_chunks();
  const std::vector<uint64_t> offsets{9 * kChunk + 7, 30 * kMiB, 0, 9 * kChunk + 8 * kPage};
  for (const uint64_t offset : offsets) EXPECT_EQ(mapped_.memory[offset], byte_of(offset)) << offset;
  EXPECT_EQ(filler_->missing_chunks(), all - 3);
  EXPECT_EQ(filler_->touched(), (std::vector<uint32_t>{9, 60, 0}));
  EXPECT_FALSE(filler_->complete());
  EXPECT_EQ(filler_->wait_complete(deadline_after(Milliseconds(10))).error().kind(), ErrorKind::kTimeout);
  expect_all_right();
  EXPECT_TRUE(filler_->complete());
}

TEST_F(MemoryFillerTest, TheRestComesByItselfAndThenNobodyCanWriteTheFiles) {
  start(MemoryFill::kOnDemand);
  serve();
  const UniqueFd even = open_memory_files(::getpid(), kImage).value().even;
  ASSERT_TRUE(filler_->wait_complete(deadline_after(Milliseconds(20'000))));
  EXPECT_EQ(filler_->missing_chunks(), 0u);
  const std::byte one{1};
  EXPECT_FALSE(pwrite_all(even.get(), {&one, 1}, 0));
  let_go();
  expect_all_right();
}

TEST_F(MemoryFillerTest, ManyThreadsThatTouchEverythingAtOnce) {
  start(MemoryFill::kOnDemand);
  serve();
  std::vector<std::future<void>> threads;
  for (uint64_t t = 0; t < 8; t++)
    threads.push_back(std::async(std::launch::async, [&, t] {
      for (uint64_t i = 0; i < kRam / kPage; i += 97) {
        const uint64_t offset = (i * 131 + t * 977) % (kRam / kPage) * kPage + t;
        ASSERT_EQ(mapped_.memory[offset], byte_of(offset));
      }
    }));
  for (std::future<void>& t : threads) t.get();
  ASSERT_TRUE(filler_->wait_complete(deadline_after(Milliseconds(20'000))));
  let_go();
  expect_all_right();
}

TEST_F(MemoryFillerTest, WhatWasTouchedLastTimeComesFirst) {
  const MemoryFilePair files = new_files();
  const std::unique_ptr<commit::DemandFill> fill = fill_of(files, {60, 4, 9999, 60, 5});
  std::vector<uint64_t> order;
  for (int i = 0; i < 4; i++) order.push_back(fill->fill_next().value().value());
  EXPECT_EQ(order, (std::vector<uint64_t>{60, 0, 1, 2})) << "4 and 5 are zero by the map, 9999 is none";
}

TEST_F(MemoryFillerTest, AFamilyHasItAloneUntilItIsComplete) {
  start(MemoryFill::kOnlyOnDemand);
  EXPECT_TRUE(filler_->claim("one"));
  EXPECT_FALSE(filler_->claim("two"));
  EXPECT_TRUE(filler_->claim("one"));
  serve();
  expect_all_right();
  EXPECT_TRUE(filler_->claim("two"));
}

// The daemon dies while somebody waits; the next one gets the descriptor from the monitor and opens the files anew.
TEST_F(MemoryFillerTest, ADeadFillerStallsAndTheNextOneTakesOver) {
  start(MemoryFill::kOnlyOnDemand);
  serve();
  EXPECT_EQ(mapped_.memory[3], byte_of(3));
  faults_.reset();
  std::future<std::byte> reader = reads(mapped_.memory[30 * kMiB + 1]);
  EXPECT_TRUE(waits(reader));
  MemoryFilePair kept = open_memory_files(::getpid(), kImage).value();  // as a monitor's own descriptors keep them
  filler_.reset();
  EXPECT_TRUE(waits(reader)) << "it must not read zeros";
  MemoryFilePair files = open_memory_files(::getpid(), kImage).value();
  kept = {};
  EXPECT_FALSE(is_complete(files));
  std::unique_ptr<commit::DemandFill> fill = fill_of(files);
  filler_ = MemoryFiller::start({kImage, std::move(files), std::move(fill), nullptr}, MemoryFill::kOnDemand);
  serve();
  EXPECT_EQ(reader.get(), byte_of(30 * kMiB + 1));
  ASSERT_TRUE(filler_->wait_complete(deadline_after(Milliseconds(20'000))));
  let_go();
  expect_all_right();
}

// It is tried again and again: a guest stands still for as long, and goes on.
TEST_F(MemoryFillerTest, WhatCannotBeReadIsWaitedFor) {
  start(MemoryFill::kOnDemand);
  ASSERT_TRUE(filler_->wait_complete(deadline_after(Milliseconds(20'000))));
  filler_.reset();
  const std::string away = packs_path() + "-away";
  std::filesystem::create_directory(away);
  const auto move_all = [](const std::filesystem::path& from, const std::filesystem::path& to) {
    const std::vector<std::filesystem::path> paths(std::filesystem::directory_iterator(from), {});
    for (const std::filesystem::path& path : paths) std::filesystem::rename(path, to / path.filename());
  };
  reopen();  // it may have had them open
  move_all(packs_path(), away);
  start(MemoryFill::kOnDemand);
  serve();
  std::future<std::byte> reader = reads(mapped_.memory[12 * kMiB]);
  EXPECT_TRUE(waits(reader));
  ASSERT_TRUE(filler_->trouble());
  EXPECT_EQ(filler_->trouble()->kind(), ErrorKind::kNotFound) << filler_->trouble()->to_string();
  move_all(away, packs_path());
  EXPECT_EQ(reader.get(), byte_of(12 * kMiB));
  EXPECT_TRUE(filler_->wait_complete(deadline_after(Milliseconds(60'000))));
  EXPECT_FALSE(filler_->trouble());
}

TEST_F(MemoryFillerTest, AChunkThatIsNotInTheStoreIsKnownBefore) {
  image::Manifest manifest = commit::manifest_in(*store_, root_);
  Digest nobodys;
  nobodys.bytes[3] = std::byte{7};
  ASSERT_TRUE(manifest.set(2, nobodys));
  const MemoryFilePair files = new_files();
  const std::unique_ptr<commit::DemandFill> fill =
      commit::DemandFill::make(manifest, *store_, image::zero_map_of(manifest).value(), files.even.get(), files.odd.get())
          .value();
  EXPECT_EQ(fill->check_present(8).error().kind(), ErrorKind::kNotFound);
}

// A taken-over monitor says that its memory lies elsewhere, or makes holes into pages of zeros: what others get is right.
TEST_F(MemoryFillerTest, FalseAddressesAndTouchedHolesChangeNothingForOthers) {
  MemoryFilePair files = new_files();
  std::unique_ptr<commit::DemandFill> fill = fill_of(files);
  mapped_ = map(files, zeros_);
  Mapped hostile = map(files, zeros_);
  filler_ = MemoryFiller::start({kImage, std::move(files), std::move(fill), nullptr}, MemoryFill::kOnlyOnDemand);
  serve();
  // Nobody watches its mapping any more: every hole it touches is a page of zeros now.
  hostile.userfault.reset();
  for (uint64_t offset = 0; offset < kRam / 2; offset += kPage) {
    EXPECT_EQ(std::byte(static_cast<volatile std::byte&>(hostile.memory[offset])), std::byte{0});
  }
  for (const uint64_t off : {uint64_t{1} << 62, uint64_t{0}, mapped_.address() + kRam, mapped_.address() - 3 * kPage - 1}) {
    Mapped liar = map(open_memory_files(::getpid(), kImage).value(), zeros_);
    std::unique_ptr<MemoryFiller::Faults> lies = filler_->serve(UniqueFd(::dup(liar.userfault.get())), off).value();
    std::future<std::byte> reader = reads(liar.memory[30 * kMiB]);
    (void)waits(reader);  // or not, by where its mapping happens to lie
    lies.reset();
    liar.userfault.reset();  // lets it go, with whatever
    reader.get();
  }
  MemoryFilePair again = open_memory_files(::getpid(), kImage).value();
  filler_.reset();
  faults_.reset();
  // The true bytes replace the zeros: those who come when it is complete see nothing of it.
  fill = fill_of(again);
  filler_ = MemoryFiller::start({kImage, std::move(again), std::move(fill), nullptr}, MemoryFill::kOnDemand);
  ASSERT_TRUE(filler_->wait_complete(deadline_after(Milliseconds(20'000))));
  let_go();
  expect_all_right();
}

TEST_F(MemoryFillerTest, OnlyADescriptorForFaultsIsTaken) {
  start(MemoryFill::kOnlyOnDemand);
  EXPECT_EQ(filler_->serve(open_file("/dev/null", O_RDWR).value(), 0).error().kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(open_memory_files(::getpid(), "sn-other").error().kind(), ErrorKind::kNotFound);
}

// A monitor may make its descriptor one that blocks, and take the event itself: only its own machine waits for that.
TEST_F(MemoryFillerTest, ADescriptorThatBlocksHoldsNobodyUp) {
  start(MemoryFill::kOnlyOnDemand);
  ASSERT_EQ(::fcntl(mapped_.userfault.get(), F_SETFL, 0), 0);
  serve();
  std::future<std::byte> reader = reads(mapped_.memory[0]);
  EXPECT_TRUE(waits(reader));
  const auto begin = MonotonicClock::now();
  faults_.reset();
  EXPECT_LT(MonotonicClock::now() - begin, Milliseconds(5000));
  mapped_.userfault.reset();
  reader.get();
}

}  // namespace
}  // namespace ramet::host
