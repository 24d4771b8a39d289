#include "output_ring.h"

#include <gtest/gtest.h>

namespace ramet::guest {
namespace {

std::string read_all(const OutputRing& ring, OutputRing::Cursor& cursor) {
  std::string all;
  while (std::optional<OutputRing::Slice> slice = ring.read(cursor)) all += slice->bytes;
  return all;
}

OutputRing::Cursor anything_may_go(const OutputRing& ring) {
  OutputRing::Cursor cursor = ring.end();
  cursor.piece++;
  return cursor;
}

TEST(OutputRing, KeepsTheOrderOfBothStreamsAndTheirOffsets) {
  OutputRing ring(1000);
  ring.append(1, "ab");
  ring.append(2, "x");
  ring.append(1, "cd");
  OutputRing::Cursor cursor;
  EXPECT_EQ(ring.read(cursor)->bytes, "ab");
  EXPECT_EQ(ring.read(cursor)->fd, 2u);
  const OutputRing::Slice last = *ring.read(cursor);
  EXPECT_EQ(last.bytes, "cd");
  EXPECT_EQ(last.offset, 2u);
  EXPECT_FALSE(ring.read(cursor));
}

TEST(OutputRing, ReaderSeesWhatIsAppendedToThePieceItHasRead) {
  OutputRing ring(1000);
  OutputRing::Cursor cursor;
  ring.append(1, "ab");
  EXPECT_EQ(read_all(ring, cursor), "ab");
  ring.append(1, "cd");
  EXPECT_FALSE(ring.at_end(cursor));
  EXPECT_EQ(read_all(ring, cursor), "cd");
  EXPECT_TRUE(ring.at_end(cursor));
}

TEST(OutputRing, KeepsWhatASlowReaderHasNotSeen) {
  OutputRing ring(100);
  OutputRing::Cursor slow;
  ring.append(1, std::string(200, 'x'));
  EXPECT_TRUE(ring.full());
  EXPECT_FALSE(ring.make_room(slow));
  EXPECT_EQ(read_all(ring, slow).size(), 200u);
}

TEST(OutputRing, DropsTheOldestWhenNobodyReads) {
  OutputRing ring(64 << 10);
  for (int i = 0; i < 100; i++) {
    ring.append(1, std::string(16 << 10, static_cast<char>('a' + i % 26)));
    ASSERT_TRUE(ring.make_room(anything_may_go(ring)));
  }
  OutputRing::Cursor cursor;
  const OutputRing::Slice oldest = *ring.read(cursor);
  EXPECT_EQ(oldest.offset % (16 << 10), 0u);
  EXPECT_EQ(ring.written(1), 100u * (16 << 10));
  EXPECT_LE(ring.cost_bytes(), 64u << 10);
}

TEST(OutputRing, ManyTinyWritesOfAlternatingStreamsAreBounded) {
  OutputRing ring(64 << 10);
  for (int i = 0; i < 100'000; i++) {
    ring.append(1 + i % 2, "x");
    if (ring.full()) ring.make_room(anything_may_go(ring));
  }
  EXPECT_LE(ring.cost_bytes(), 65u << 10);
}

}  // namespace
}  // namespace ramet::guest
