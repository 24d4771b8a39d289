// An index whose rows are each as they were written, and cannot be together.
#include "chunk/index.h"

#include <gtest/gtest.h>

#include "chunk/row_sum.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk {
namespace {

class IndexTest : public ::testing::Test {
 protected:
  IndexTest() {
    pack_.id.fill(std::byte{1});
    pack_.bytes = kPackAlignment;
    FrameEntry frame;
    frame.id = 1;
    frame.offset = kPackHeaderBytes;
    frame.stored_bytes = 100;
    frame.blocks = 1;
    pack_.tail.frames.push_back(frame);
  }
  std::unique_ptr<Index> open() { return Index::open(path_).value(); }
  void change(const std::string& sql) { EXPECT_TRUE(SqlDatabase::open(path_)->exec(sql.c_str())); }
  void set_next_frame(int64_t next) {
    change("UPDATE meta SET value = " + std::to_string(next) + ", sum = " + std::to_string(sum_of_meta("next_frame", next)) +
           " WHERE key = 'next_frame'");
  }

  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path + "/index.db";
  Index::AddedPack pack_;
};

TEST_F(IndexTest, NoFrameGetsANumberOfAPublicStore) {
  ASSERT_TRUE(open()->check());
  set_next_frame(INT64_MAX - 10);
  EXPECT_EQ(open()->reserve_frame_ids(1).error().kind(), ErrorKind::kNoSpace);
  set_next_frame(-1);
  EXPECT_EQ(open()->reserve_frame_ids(1).error().kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(open()->check().error().kind(), ErrorKind::kCorrupt);
}

TEST_F(IndexTest, ThePackAfterTheLastNumberIsRefused) {
  ASSERT_TRUE(open()->check());
  change("INSERT INTO packs VALUES (9223372036854775807, x'00', 0, 0)");
  EXPECT_EQ(open()->add({&pack_, 1}).error().kind(), ErrorKind::kCorrupt);
}

TEST_F(IndexTest, AFrameWithANumberToComeIsNoticed) {
  ASSERT_TRUE(open()->add({&pack_, 1}));
  ASSERT_TRUE(open()->check());
  set_next_frame(1);
  EXPECT_EQ(open()->check().error().kind(), ErrorKind::kCorrupt);
}

TEST_F(IndexTest, AFrameWhosePackWasLostIsNoticed) {
  ASSERT_TRUE(open()->add({&pack_, 1}));
  change("PRAGMA foreign_keys = OFF; DELETE FROM packs");
  EXPECT_EQ(open()->check().error().kind(), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace ramet::chunk
