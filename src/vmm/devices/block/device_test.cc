#include "vmm/devices/block/device.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "image/testing/memory_target.h"
#include "vmm/devices/block/guest_fake.h"

namespace ramet::vmm {
namespace {

using image::testing::MemoryTarget;
using std::chrono::milliseconds;

constexpr uint64_t kBlocks = 1000;

class Block : public ::testing::Test {
 protected:
  Block() { guest.start(); }
  ~Block() override {
    target.set(target.reads_stalled, false);
    target.set(target.flushes_stalled, false);
  }
  Deadline soon() { return deadline_after(milliseconds(50)); }
  Deadline late() { return deadline_after(std::chrono::seconds(10)); }

  MemoryTarget target{kBlocks};
  BlockDevice device{target, {.id = "vda-serial"}};
  BlockGuestFake guest{device};
};

TEST_F(Block, TellsItsSizeAndLimits) {
  EXPECT_EQ(guest.driver.read(VIRTIO_MMIO_DEVICE_ID), 2u);
  EXPECT_EQ(guest.driver.read(VIRTIO_MMIO_CONFIG), kBlocks * 8);
  EXPECT_EQ(guest.driver.read(VIRTIO_MMIO_CONFIG + offsetof(virtio_blk_config, blk_size)), 4096u);
  EXPECT_EQ(guest.driver.read(VIRTIO_MMIO_CONFIG + offsetof(virtio_blk_config, seg_max)), 254u);
  EXPECT_EQ(guest.driver.read(VIRTIO_MMIO_CONFIG + offsetof(virtio_blk_config, max_write_zeroes_seg)), 16u);
  EXPECT_EQ(guest.driver.read(VIRTIO_MMIO_CONFIG + 0xf0), 0u);
}

TEST_F(Block, ReadsWhatWasWritten) {
  EXPECT_EQ(guest.write_block(7, 'x'), VIRTIO_BLK_S_OK);
  EXPECT_EQ(guest.read_block(7), 'x');
  EXPECT_EQ(guest.read_block(8), '\0');
  EXPECT_EQ(guest.flush(), VIRTIO_BLK_S_OK);
  EXPECT_EQ(target.flushes, 1);
  EXPECT_EQ(device.metrics().reads_inline, 2u);
}

TEST_F(Block, CountsTheBytesItWroteIntoTheGuest) {
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_IN, 0, {}, 8192).written, 8193u);
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_OUT, 0, std::string(4096, 'a')).written, 1u);
}

TEST_F(Block, TellsItsName) {
  const BlockGuestFake::Answer a = guest.call(VIRTIO_BLK_T_GET_ID, 0, {}, 20);
  EXPECT_EQ(a.status, VIRTIO_BLK_S_OK);
  EXPECT_EQ(a.data, std::string("vda-serial").append(10, '\0'));
}

TEST_F(Block, DiscardAndWriteZeroesReadAsZero) {
  guest.write_block(3, 'a');
  guest.write_block(4, 'b');
  EXPECT_EQ(guest.zero(VIRTIO_BLK_T_DISCARD, 3 * 8, 8), VIRTIO_BLK_S_OK);
  EXPECT_EQ(guest.zero(VIRTIO_BLK_T_WRITE_ZEROES, 4 * 8, 8, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP), VIRTIO_BLK_S_OK);
  EXPECT_EQ(guest.read_block(3), '\0');
  EXPECT_EQ(guest.read_block(4), '\0');
}

TEST_F(Block, WrongRequestsGetAnErrorAndTheDeviceGoesOn) {
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_IN, kBlocks * 8, {}, 4096).status, VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_IN, ~0ull, {}, 4096).status, VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_IN, 1, {}, 4096).status, VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_IN, 0, {}, 512).status, VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_IN, 0, {}, 4095).status, VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_IN, 0).status, VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_OUT, 0).status, VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.call(99, 0).status, VIRTIO_BLK_S_UNSUPP);
  EXPECT_EQ(guest.zero(VIRTIO_BLK_T_DISCARD, 0, 8, 1), VIRTIO_BLK_S_UNSUPP);
  EXPECT_EQ(guest.zero(VIRTIO_BLK_T_WRITE_ZEROES, 0, 8, 2), VIRTIO_BLK_S_UNSUPP);
  EXPECT_EQ(guest.zero(VIRTIO_BLK_T_DISCARD, kBlocks * 8 - 8, 16), VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_DISCARD, 0, "short").status, VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.write_block(1, 'k'), VIRTIO_BLK_S_OK);
  EXPECT_FALSE(guest.driver.needs_reset());
}

TEST_F(Block, AChainWithoutAStatusByteBreaksTheQueueUntilAReset) {
  const DriverFake::Buffer only{guest.driver.allocate(16), 16, false};
  guest.driver.add(0, {&only, 1});
  guest.driver.notify(0);
  EXPECT_TRUE(guest.driver.needs_reset());
  guest.start();
  EXPECT_FALSE(guest.driver.needs_reset());
  EXPECT_EQ(guest.write_block(1, 'k'), VIRTIO_BLK_S_OK);
}

TEST_F(Block, AReadOnlyDiskTakesNoWrites) {
  BlockDevice read_only(target, {.id = "ro", .read_only = true});
  BlockGuestFake reader(read_only);
  reader.start(0);
  EXPECT_TRUE(read_only.offered_features() & (1ull << VIRTIO_BLK_F_RO));
  EXPECT_EQ(reader.write_block(1, 'k'), VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(reader.read_block(1), '\0');
}

TEST_F(Block, ColdReadsAndLargeWritesAreDoneByWorkers) {
  const std::string large(256 << 10, 'l');
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_OUT, 0, large).status, VIRTIO_BLK_S_OK);
  target.cold = true;
  const BlockGuestFake::Answer a = guest.call(VIRTIO_BLK_T_IN, 0, {}, 256 << 10);
  EXPECT_EQ(a.status, VIRTIO_BLK_S_OK);
  EXPECT_EQ(a.data, large);
  EXPECT_EQ(device.metrics().reads_inline, 0u);
}

TEST_F(Block, ErrorsOfTheDiskReachTheGuest) {
  target.failing = true;
  EXPECT_EQ(guest.write_block(1, 'k'), VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.call(VIRTIO_BLK_T_IN, 8, {}, 4096).status, VIRTIO_BLK_S_IOERR);
  EXPECT_EQ(guest.flush(), VIRTIO_BLK_S_IOERR);
  target.failing = false;
  EXPECT_EQ(guest.write_block(1, 'k'), VIRTIO_BLK_S_OK);
}

TEST_F(Block, QuiesceWaitsForReadsInFlight) {
  target.cold = true;
  target.set(target.reads_stalled, true);
  guest.submit(VIRTIO_BLK_T_IN, 0, {}, 4096);
  EXPECT_EQ(guest.driver.transport().quiesce(soon()).error().kind(), ErrorKind::kTimeout);
  guest.driver.transport().resume();
  target.set(target.reads_stalled, false);
  EXPECT_TRUE(guest.driver.transport().quiesce(late()));
  EXPECT_TRUE(guest.take(milliseconds(0)));  // it was answered before quiesce returned
  EXPECT_EQ(target.holds, 1);
  guest.driver.transport().resume();
  EXPECT_EQ(target.holds, 0);
}

TEST_F(Block, RequestsThatCameWhileQuiescedAreServedByResume) {
  ASSERT_TRUE(guest.driver.transport().quiesce(late()));
  guest.submit(VIRTIO_BLK_T_IN, 0, {}, 4096);
  EXPECT_FALSE(guest.take(milliseconds(20)));
  guest.driver.transport().resume();
  EXPECT_TRUE(guest.take());
}

TEST_F(Block, QuiesceDoesNotWaitForAFlushAndItIsAnsweredOnceAfterResume) {
  target.set(target.flushes_stalled, true);
  const uint16_t head = guest.submit(VIRTIO_BLK_T_FLUSH, 0, {}, 0);
  ASSERT_TRUE(guest.driver.transport().quiesce(late()));
  target.set(target.flushes_stalled, false);
  EXPECT_FALSE(guest.take(milliseconds(30)));  // nothing changes while quiesced
  guest.driver.transport().resume();
  EXPECT_EQ(guest.take().value().head, head);
  EXPECT_FALSE(guest.take(milliseconds(30)));
}

TEST_F(Block, AForkedChildIssuesTheFlushAgainAndSoDoesTheParent) {
  target.set(target.flushes_stalled, true);
  const uint16_t head = guest.submit(VIRTIO_BLK_T_FLUSH, 0, {}, 0);
  ASSERT_TRUE(guest.driver.transport().quiesce(late()));
  const pid_t child = ::fork();
  if (child == 0) {
    target.after_fork();
    target.flushes_stalled = false;
    guest.driver.transport().after_fork();
    guest.driver.transport().resume();
    const std::optional<BlockGuestFake::Answer> answer = guest.take();
    const bool good = answer && answer->head == head && answer->status == VIRTIO_BLK_S_OK && !guest.take(milliseconds(20)) &&
                      target.flushes == 1 && guest.write_block(1, 'c') == VIRTIO_BLK_S_OK && guest.read_block(1) == 'c';
    ::_exit(good ? 0 : 1);
  }
  guest.driver.transport().resume();
  target.set(target.flushes_stalled, false);
  EXPECT_EQ(guest.take().value().head, head);
  EXPECT_EQ(guest.read_block(1), '\0');
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Block, ARestoredMachineIssuesTheFlushAgain) {
  target.set(target.flushes_stalled, true);
  const uint16_t head = guest.submit(VIRTIO_BLK_T_FLUSH, 0, {}, 0);
  ASSERT_TRUE(guest.driver.transport().quiesce(late()));
  const std::string saved = guest.driver.transport().save();

  MemoryTarget other_target(kBlocks);
  BlockDevice other(other_target, {.id = "vda-serial"});
  std::atomic<int> interrupts = 0;
  MmioTransport transport(guest.driver.memory(), other, [&] { interrupts++; });
  ASSERT_TRUE(transport.restore(saved));
  EXPECT_FALSE(guest.take(milliseconds(0)));
  transport.resume();
  EXPECT_EQ(guest.take().value().head, head);
  EXPECT_EQ(other_target.flushes, 1);
  guest.driver.reset();
  guest.driver.transport().resume();
}

TEST_F(Block, DamagedStateIsRefused) {
  std::string saved = guest.driver.transport().save();
  BlockDevice other(target, {.id = "x"});
  EXPECT_EQ(MmioTransport(guest.driver.memory(), other, [] {}).restore("nonsense").error().kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(other.restore("\x08\x01\x12\x02\xff\x7f").error().kind(), ErrorKind::kCorrupt);
}

TEST_F(Block, AResetWaitsForReadsAndForgetsFlushes) {
  target.cold = true;
  target.set(target.reads_stalled, true);
  target.set(target.flushes_stalled, true);
  guest.submit(VIRTIO_BLK_T_IN, 0, {}, 4096);
  guest.submit(VIRTIO_BLK_T_FLUSH, 0, {}, 0);
  std::thread releaser([this] {
    std::this_thread::sleep_for(milliseconds(30));
    target.set(target.reads_stalled, false);
  });
  guest.driver.reset();  // returns when no read can touch guest memory any more
  EXPECT_FALSE(target.reads_stalled);
  releaser.join();
  guest.start();
  target.set(target.flushes_stalled, false);
  target.cold = false;
  EXPECT_EQ(guest.write_block(2, 'n'), VIRTIO_BLK_S_OK);
  EXPECT_FALSE(guest.take(milliseconds(30)));  // the old flush is not answered
}

}  // namespace
}  // namespace ramet::vmm
