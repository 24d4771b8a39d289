// The log on a disk that is really full.
#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <regex>
#include <sstream>

#include "base/file.h"
#include "base/testing/small_disk.h"

namespace ramet {
namespace {

using testing::on_a_small_disk;
using testing::SmallDisk;

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    char name[] = "/tmp/ramet-log-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~LogTest() override { std::filesystem::remove_all(directory_); }

  // Stderr is a file on it while `use` runs.
  void on_disk(const std::function<void(SmallDisk&)>& use) {
    on_a_small_disk(directory_ + "/disk", 1u << 20, [&](SmallDisk& disk) {
      const UniqueFd log = open_file(disk.path() + "/log", O_WRONLY | O_CREAT | O_APPEND, 0600).value();
      const UniqueFd before(::dup(STDERR_FILENO));
      ::dup2(log.get(), STDERR_FILENO);
      log_init("test", "", LogLevel::kInfo);
      use(disk);
      ::dup2(before.get(), STDERR_FILENO);
    });
  }
  static std::vector<std::string> lines(const SmallDisk& disk) {
    std::istringstream text(read_file(disk.path() + "/log", 1u << 20).value());
    std::vector<std::string> out;
    for (std::string line; std::getline(text, line);) out.push_back(line);
    return out;
  }

  std::string directory_;
};

TEST_F(LogTest, OnAFullDiskLinesAreLostAndTheLossIsSaid) {
  on_disk([](SmallDisk& disk) {
    log_info("before");
    disk.fill();
    for (int i = 0; i < 500; i++) log_info("line " + std::to_string(i) + " that is lost, or fits into the last page");
    disk.free();
    log_info("after");
    log_info("last");
    const std::vector<std::string> found = lines(disk);
    ASSERT_GE(found.size(), 5u);
    const std::string &missing = found[found.size() - 3], &torn = found[found.size() - 4];
    std::smatch number;
    ASSERT_TRUE(
        std::regex_search(missing, number, std::regex("^\\S+ warn test: (\\d+) lines of this log are missing: No space left")))
        << missing;
    EXPECT_TRUE(found[found.size() - 2].ends_with("info test: after")) << found[found.size() - 2];
    EXPECT_TRUE(found.back().ends_with("info test: last"));
    EXPECT_TRUE(found.front().ends_with("info test: before"));
    const bool half = !torn.ends_with("last page");
    // All but four are lines of the loop; a half one is among the lost.
    EXPECT_EQ(std::stoul(number[1]) + found.size() - 4 - half, 500u);
    for (size_t i = 0; i + 4 < found.size(); i++) EXPECT_TRUE(found[i].starts_with("2") && found[i].size() > 20) << found[i];
  });
}

TEST_F(LogTest, AChildDoesNotSayWhatItsParentLost) {
  on_disk([](SmallDisk& disk) {
    disk.fill();
    log_info(std::string(8192, 'x'));
    disk.free();
    log_init("child", "", LogLevel::kInfo);
    log_info("first");
    EXPECT_TRUE(lines(disk).back().ends_with("child: first"));
    for (const std::string& line : lines(disk)) EXPECT_EQ(line.find("missing"), line.npos) << line;
  });
}

}  // namespace
}  // namespace ramet
