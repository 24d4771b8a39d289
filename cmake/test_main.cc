// main() of every GoogleTest program. Exit status: 0 all ran and passed, 77 nothing failed but something was skipped, else 1.
// A failure is never hidden behind a skip of the same program, which matching on the output would do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  testing::InitGoogleMock(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) return failed;
  return testing::UnitTest::GetInstance()->skipped_test_count() > 0 ? kSkipped : 0;
}
