// When files of a template that was never committed go.
#include "host/template_uploads.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <thread>

#include "base/file.h"

namespace ramet::host {
namespace {

constexpr Milliseconds kIdle{100};

class TemplateUploadsTest : public ::testing::Test {
 protected:
  TemplateUploadsTest() {
    char path[] = "/tmp/ramet-uploads-XXXXXX";
    paths_.state_dir = ::mkdtemp(path);
    EXPECT_TRUE(make_directories(paths_.templates()));
    open({.idle = kIdle, .uploads = 2});
  }
  ~TemplateUploadsTest() override {
    writer_.reset();
    uploads_.reset();
    std::filesystem::remove_all(paths_.state_dir);
  }
  void open(TemplateUploads::Limits limits) {
    uploads_ = std::make_unique<TemplateUploads>(
        paths_, [](uint64_t) { return Status(); }, limits);
  }
  void begin(const std::string& name, const std::string& file = "vmlinux") {
    writer_ = uploads_->write(name, file).value();
    EXPECT_TRUE(writer_->write(as_bytes("bytes")));
  }
  void put(const std::string& name, const std::string& file = "vmlinux") {
    begin(name, file);
    EXPECT_TRUE(writer_->finish());
    writer_.reset();
  }
  static void wait_until_idle() { std::this_thread::sleep_for(kIdle + Milliseconds(20)); }
  std::set<std::string> left() const {
    std::set<std::string> names;
    for (const auto& e : std::filesystem::recursive_directory_iterator(paths_.templates()))
      if (!e.is_directory()) names.insert(e.path().lexically_relative(paths_.templates()));
    return names;
  }
  size_t directories() const {
    size_t n = 0;
    for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(paths_.templates())) n++;
    return n;
  }

  Paths paths_;
  std::unique_ptr<TemplateUploads> uploads_;
  std::unique_ptr<TemplateFileWriter> writer_;
};

using Names = std::set<std::string>;

TEST_F(TemplateUploadsTest, FinishedFilesStayForTheirTimeAndNoLonger) {
  open({.idle = std::chrono::hours(1), .uploads = 2});
  put("old");
  uploads_->drop_old();
  EXPECT_EQ(left(), (Names{".upload-old/vmlinux", ".upload-old/vmlinux.sha256"}));
  open({.idle = kIdle, .uploads = 2});
  put("new");
  wait_until_idle();
  uploads_->drop_old();
  EXPECT_EQ(left(), (Names{".upload-old/vmlinux", ".upload-old/vmlinux.sha256"}))
      << "of an earlier daemon: sweep() takes those";
  uploads_->sweep();
  EXPECT_EQ(directories(), 0u);
}

TEST_F(TemplateUploadsTest, WhatIsBeingWrittenOrCommittedStays) {
  put("t", "initrd");
  begin("t");
  wait_until_idle();
  uploads_->drop_old();
  EXPECT_FALSE(uploads_->give_up("t"));
  EXPECT_TRUE(left().contains(".upload-t/initrd"));
  ASSERT_TRUE(writer_->finish());
  writer_.reset();
  {
    const std::shared_ptr<TemplateUploads::Use> commit = uploads_->use("t").value();
    wait_until_idle();
    uploads_->drop_old();
    EXPECT_TRUE(left().contains(".upload-t/vmlinux"));
  }
  uploads_->drop_old();
  EXPECT_TRUE(left().contains(".upload-t/vmlinux")) << "its time begins anew";
  wait_until_idle();
  uploads_->drop_old();
  EXPECT_EQ(directories(), 0u);
}

TEST_F(TemplateUploadsTest, TheNextOfThatNameFindsNothingOfOneWhoseTimeWasOver) {
  put("t", "initrd");
  wait_until_idle();
  put("t", "vmlinux");
  EXPECT_EQ(left(), (Names{".upload-t/vmlinux", ".upload-t/vmlinux.sha256"}));
}

TEST_F(TemplateUploadsTest, OneTooManyTakesThePlaceOfTheOldest) {
  put("a");
  put("b");
  put("a", "initrd");
  put("c");
  EXPECT_EQ(left(), (Names{".upload-a/initrd", ".upload-a/initrd.sha256", ".upload-a/vmlinux", ".upload-a/vmlinux.sha256",
                           ".upload-c/vmlinux", ".upload-c/vmlinux.sha256"}));
}

TEST_F(TemplateUploadsTest, OneTooManyIsRefusedWhileAllAreWritten) {
  const std::unique_ptr<TemplateFileWriter> a = uploads_->write("a", "vmlinux").value(),
                                            b = uploads_->write("b", "vmlinux").value();
  EXPECT_EQ(uploads_->write("c", "vmlinux").error().kind(), ErrorKind::kConflict);
  EXPECT_TRUE(uploads_->write("a", "initrd"));
}

TEST_F(TemplateUploadsTest, OneThatCameToNothingLeavesNothing) {
  begin("t");
  writer_.reset();
  EXPECT_EQ(directories(), 0u);
  EXPECT_FALSE(uploads_->give_up("t"));
  put("t");
  EXPECT_TRUE(uploads_->give_up("t"));
  EXPECT_EQ(directories(), 0u);
}

}  // namespace
}  // namespace ramet::host
