// Imports that are cut, and exports that fail: nothing half is there, and what was stored is not stored again.
#include "commit/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "base/file.h"
#include "chunk/testing/store_fixture.h"
#include "commit/export.h"
#include "commit/live_chunks.h"
#include "commit/program.h"
#include "commit/stored_manifest.h"

namespace ramet::commit {
namespace {

using chunk::testing::noise;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kChunks = 6;

class ImportTest : public chunk::testing::StoreFixture {
 protected:
  void SetUp() override {
    StoreFixture::SetUp();
    const UniqueFd file = open_file(path_, O_RDWR | O_CREAT, 0600).value();
    for (uint64_t i = 0; i < kChunks; i++) {
      chunk::testing::Bytes part(image::kChunkBytes);
      chunk::testing::fill_with_noise(std::span(part).first(1 << 20), i);
      ASSERT_TRUE(pwrite_all(file.get(), part, i * image::kChunkBytes));
    }
  }
  ImportRequest request() const {
    return {.path = path_, .name = "a", .work_directory = directory_.path, .step_bytes = 2 * image::kChunkBytes};
  }
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path)) out.push_back(entry.path().filename());
    std::ranges::sort(out);
    return out;
  }
  // Ends this process after as many steps of an import.
  [[noreturn]] void import_and_die(uint64_t chunks) {
    uint64_t seen = 0;
    static_cast<void>(import_image(request(), *store_, catalogue_, [&](const Progress& p) {
      if (p.step == "store" && p.total_bytes != p.done_bytes && ++seen > chunks) ::kill(::getpid(), SIGKILL);
    }));
    ::_exit(0);
  }
  void import_is_killed_after(uint64_t chunks) {
    store_.reset();
    const pid_t child = ::fork();
    if (child == 0) {
      reopen();
      import_and_die(chunks);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    reopen();
  }
  void expect_whole() {
    image::Manifest manifest = manifest_in(*store_, catalogue_.get("a").value());
    const std::string out = directory_.path + "/out.raw";
    ASSERT_TRUE(export_image({}, manifest, *store_, out));
    EXPECT_EQ(read_file(out, 1 << 30).value(), read_file(path_, 1 << 30).value());
    std::filesystem::remove(out);
  }

  const std::string path_ = directory_.path + "/disk.raw";
  Catalogue catalogue_ = Catalogue::open(directory_.path + "/images").value();
};

TEST_F(ImportTest, GoesOnWhereItWasKilled) {
  import_is_killed_after(3);
  EXPECT_THAT(catalogue_.names().value(), IsEmpty());
  EXPECT_THAT(catalogue_.unfinished_names().value(), ElementsAre("a"));
  EXPECT_EQ(catalogue_.unfinished("a")->next_chunk, 2u);
  uint64_t first = 0;
  ASSERT_TRUE(import_image(request(), *store_, catalogue_, [&](const Progress& p) {
    if (first == 0) first = p.done_bytes;
  }));
  EXPECT_EQ(first, 3 * image::kChunkBytes);  // the first two were not read again
  EXPECT_THAT(catalogue_.unfinished_names().value(), IsEmpty());
  expect_whole();
}

TEST_F(ImportTest, WhatACutImportStoredIsNotCollected) {
  import_is_killed_after(4);
  const uint64_t before = stored_bytes();
  EXPECT_GE(before, 4u << 20);
  ASSERT_TRUE(store_->collect([&] { return live_chunks(*store_, std::span(&catalogue_, 1), nullptr); }));
  ASSERT_TRUE(import_image(request(), *store_, catalogue_));
  expect_whole();
  // Given up, it is.
  ASSERT_TRUE(catalogue_.remove("a"));
  ASSERT_TRUE(store_->collect([&] { return live_chunks(*store_, std::span(&catalogue_, 1), nullptr); }));
  EXPECT_EQ(stored_bytes(), 0u);
}

// Somebody who does not know of it collected what it had stored.
TEST_F(ImportTest, WhatWasLostMeanwhileIsReadAgain) {
  import_is_killed_after(3);
  ASSERT_TRUE(store_->collect([] { return Result<chunk::Store::LiveSet>(); }));
  ASSERT_TRUE(import_image(request(), *store_, catalogue_));
  expect_whole();
}

TEST_F(ImportTest, AnotherFileBeginsAnew) {
  import_is_killed_after(3);
  const UniqueFd file = open_file(path_, O_RDWR).value();
  ASSERT_TRUE(pwrite_all(file.get(), noise(4096, 99), 0));
  ASSERT_TRUE(import_image(request(), *store_, catalogue_));
  expect_whole();
}

TEST_F(ImportTest, ANameIsTakenOnce) {
  ASSERT_TRUE(import_image(request(), *store_, catalogue_));
  EXPECT_EQ(import_image(request(), *store_, catalogue_).error().kind(), ErrorKind::kExists);
}

TEST_F(ImportTest, DisksOverTheLimitAreRefused) {
  ImportRequest over = request();
  over.limits.max_disk_bytes = 1 << 20;
  const Error error = import_image(over, *store_, catalogue_).error();
  EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
  EXPECT_THAT(error.message(), HasSubstr("is a disk of 100663296 bytes, the limit is 1048576"));
}

TEST_F(ImportTest, SpecialFilesAreNoImages) {
  ImportRequest fifo = request();
  fifo.path = directory_.path + "/pipe";
  ASSERT_EQ(::mkfifo(fifo.path.c_str(), 0600), 0);
  for (const ImageFormat format : {ImageFormat::kRaw, ImageFormat::kQcow2, ImageFormat::kTar, ImageFormat::kOci}) {
    fifo.format = format;
    EXPECT_FALSE(import_image(fifo, *store_, catalogue_));
  }
}

// A limit on the size of files is a full disk that a test can have: writes end with EFBIG, programs with SIGXFSZ.
class FullDisk {
 public:
  explicit FullDisk(uint64_t bytes) {
    before_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_handler_);
  }

 private:
  rlimit before_{};
  sighandler_t before_handler_;
};

TEST_F(ImportTest, AFullDiskLeavesNothingHalf) {
  const std::vector<std::string> before = files();
  {
    const FullDisk full(1 << 20);
    const Result<image::ManifestRoot> done = import_image(request(), *store_, catalogue_);
    ASSERT_FALSE(done);
    EXPECT_THAT(done.error().message(), HasSubstr("File too large"));
  }
  EXPECT_THAT(catalogue_.names().value(), IsEmpty());
  EXPECT_EQ(files(), before);
  ASSERT_TRUE(import_image(request(), *store_, catalogue_));
  expect_whole();
}

TEST_F(ImportTest, AnExportToAFullDiskLeavesNoFile) {
  ASSERT_TRUE(import_image(request(), *store_, catalogue_));
  image::Manifest manifest = manifest_in(*store_, catalogue_.get("a").value());
  const std::vector<std::string> before = files();
  for (const ExportFormat format : {ExportFormat::kRaw, ExportFormat::kQcow2}) {
    const FullDisk full(1 << 20);
    const Status done = export_image({.format = format}, manifest, *store_, directory_.path + "/out");
    ASSERT_FALSE(done);
    EXPECT_THAT(done.error().message(), HasSubstr("File too large"));
    EXPECT_EQ(files(), before);
  }
}

TEST(Program, RunsInBounds) {
  EXPECT_TRUE(run_program({.argv = {"true"}}));
  const Error failed = run_program({.argv = {"sh", "-c", "echo first; printf 'why\\033[31m' >&2; exit 3"}}).error();
  EXPECT_EQ(failed.message(), "sh failed with status 3: why\\x1b[31m");
  EXPECT_EQ(run_program({.argv = {"no-such-program"}}).error().kind(), ErrorKind::kUnavailable);
  int ticks = 0;
  const Error late = run_program({.argv = {"sleep", "100"},
                                  .time = std::chrono::seconds(1),
                                  .on_tick =
                                      [&] {
                                        ticks++;
                                        return Status();
                                      }})
                         .error();
  EXPECT_EQ(late.kind(), ErrorKind::kTimeout);
  EXPECT_GE(ticks, 1);
}

TEST(Program, WritesNoMoreThanItMay) {
  chunk::testing::TemporaryDirectory directory;
  const std::string out = directory.path + "/out";
  const Error error =
      run_program({.argv = {"dd", "if=/dev/zero", "of=" + out, "bs=4096", "count=100"}, .max_file_bytes = 65536}).error();
  EXPECT_EQ(error.kind(), ErrorKind::kNoSpace) << error.to_string();
  EXPECT_LE(std::filesystem::file_size(out), 65536u);
}

}  // namespace
}  // namespace ramet::commit
