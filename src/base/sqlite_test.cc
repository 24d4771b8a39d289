#include "base/sqlite.h"

#include <gtest/gtest.h>

namespace ramet {
namespace {

constexpr const char* kInsert = "INSERT INTO numbers VALUES (?, ?)";
constexpr const char* kRead = "SELECT text FROM numbers WHERE number = ?";

class SqliteTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(db_.exec("CREATE TABLE numbers(number INTEGER PRIMARY KEY, text TEXT)")); }
  Status insert(int64_t number, std::optional<std::string> text) {
    TRY_ASSIGN(SqlStatement s, db_.prepare(kInsert));
    return s.bind(number).bind(text).run();
  }
  std::string read(int64_t number) {
    SqlStatement s = db_.prepare(kRead).value();
    return s.bind(number).step().value() ? s.text_at(0) : "none";
  }
  SqlDatabase db_ = SqlDatabase::open(":memory:").value();
};

TEST_F(SqliteTest, AStatementIsThereAgainWithNothingOfItsLastUse) {
  ASSERT_TRUE(insert(1, "one"));
  EXPECT_EQ(insert(1, "again").error().kind(), ErrorKind::kConflict);
  ASSERT_TRUE(insert(2, std::nullopt));
  {
    SqlStatement forgotten = db_.prepare(kInsert).value();
    forgotten.bind(int64_t{3}).bind(std::string_view("left behind"));
  }
  SqlStatement bare = db_.prepare(kInsert).value();
  ASSERT_TRUE(bare.bind(int64_t{4}).run());  // its text: not bound, so NULL
  EXPECT_EQ(read(1), "one");
  EXPECT_EQ(read(2), "");
  EXPECT_EQ(read(3), "none");
  EXPECT_EQ(read(4), "");
}

TEST_F(SqliteTest, OneTextMayBeInUseSeveralTimesAtOnce) {
  ASSERT_TRUE(insert(1, "one"));
  ASSERT_TRUE(insert(2, "two"));
  for (int round = 0; round < 3; round++) {
    SqlStatement first = db_.prepare(kRead).value(), second = db_.prepare(kRead).value();
    ASSERT_TRUE(first.bind(int64_t{1}).step().value());
    ASSERT_TRUE(second.bind(int64_t{2}).step().value());
    EXPECT_EQ(first.text_at(0) + second.text_at(0), "onetwo");
  }
}

// One that was left in the middle of its rows must not hold on to what it read.
TEST_F(SqliteTest, AnIdleStatementKeepsNothingLocked) {
  ASSERT_TRUE(insert(1, "one"));
  ASSERT_TRUE(insert(2, "two"));
  {
    SqlStatement all = db_.prepare("SELECT text FROM numbers").value();
    ASSERT_TRUE(all.step().value());
  }
  EXPECT_TRUE(db_.exec("DROP TABLE numbers"));
}

TEST_F(SqliteTest, AKeptStatementSeesTablesThatChanged) {
  ASSERT_TRUE(insert(1, "one"));
  EXPECT_EQ(read(1), "one");
  ASSERT_TRUE(db_.exec("DROP TABLE numbers; CREATE TABLE numbers(text TEXT, number INTEGER)"));
  ASSERT_TRUE(db_.exec("INSERT INTO numbers VALUES ('uno', 1)"));
  EXPECT_EQ(read(1), "uno");
}

TEST_F(SqliteTest, AStatementOutlivesItsDatabase) {
  ASSERT_TRUE(insert(1, "one"));
  std::optional<SqlDatabase> other = SqlDatabase::open(":memory:").value();
  SqlStatement s = other->prepare("SELECT 5").value();
  other.reset();
  ASSERT_TRUE(s.step().value());
  EXPECT_EQ(s.int_at(0), 5);
}

}  // namespace
}  // namespace ramet
