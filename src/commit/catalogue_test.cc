// Images by name: what was added is there, and nothing else is.
#include "commit/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/testing/small_disk.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::commit {
namespace {

class CatalogueTest : public ::testing::Test {
 protected:
  chunk::testing::TemporaryDirectory directory_;
  Catalogue catalogue_ = Catalogue::open(directory_.path + "/images").value();
  const image::ManifestRoot root_{image::ImageKind::kDisk, 7, {image::kZeros}};
};

TEST_F(CatalogueTest, GivesBackWhatWasAdded) {
  ASSERT_TRUE(catalogue_.add("debian-12.base", root_));
  ASSERT_TRUE(catalogue_.add("a", root_));
  EXPECT_EQ(catalogue_.get("debian-12.base").value(), root_);
  EXPECT_THAT(Catalogue::open(directory_.path + "/images")->names().value(), ::testing::ElementsAre("a", "debian-12.base"));
  EXPECT_EQ(catalogue_.add("a", root_).error().kind(), ErrorKind::kExists);
  EXPECT_EQ(catalogue_.get("b").error().kind(), ErrorKind::kNotFound);
}

TEST_F(CatalogueTest, WhatWasRemovedIsGone) {
  ASSERT_TRUE(catalogue_.add("a", root_));
  EXPECT_TRUE(catalogue_.remove("a"));
  EXPECT_EQ(catalogue_.get("a").error().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(catalogue_.remove("a").error().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(catalogue_.remove("../a").error().kind(), ErrorKind::kInvalid);
  EXPECT_TRUE(catalogue_.names()->empty());
}

TEST_F(CatalogueTest, NamesCannotLeaveTheDirectory) {
  for (const char* bad : {"", ".", "..", "../a", "a/b", ".hidden", "-x", "a b", "ä"}) {
    EXPECT_EQ(catalogue_.add(bad, root_).error().kind(), ErrorKind::kInvalid) << bad;
    EXPECT_EQ(catalogue_.get(bad).error().kind(), ErrorKind::kInvalid) << bad;
  }
  EXPECT_TRUE(catalogue_.add(std::string(64, 'x'), root_));
  EXPECT_FALSE(catalogue_.add(std::string(65, 'x'), root_));
}

TEST_F(CatalogueTest, OtherFilesAreNoImagesAndDamagedOnesAreErrors) {
  ASSERT_TRUE(catalogue_.add("a", root_));
  std::ofstream(directory_.path + "/images/a.manifest.tmp.12") << "half";
  std::ofstream(directory_.path + "/images/notes") << "somebody's";
  EXPECT_THAT(catalogue_.names().value(), ::testing::ElementsAre("a"));
  std::ofstream(directory_.path + "/images/a.manifest") << "half";
  EXPECT_EQ(catalogue_.get("a").error().kind(), ErrorKind::kCorrupt);
}

TEST_F(CatalogueTest, OnAFullDiskNamesStayAsTheyAreAndCanGo) {
  ramet::testing::on_a_small_disk(directory_.path + "/small", 1u << 20, [this](ramet::testing::SmallDisk& disk) {
    Catalogue full = Catalogue::open(disk.path() + "/images").value();
    const Unfinished import{.next_chunk = 0, .root = root_};
    ASSERT_TRUE(full.add("a", root_));
    ASSERT_TRUE(full.note_unfinished("half", import));
    const std::set<std::string> files = disk.files();
    disk.fill();
    const Error refused = full.add("b", root_).error();
    EXPECT_EQ(refused.kind(), ErrorKind::kNoSpace);
    EXPECT_THAT(refused.message(), ::testing::HasSubstr("b.manifest"));
    EXPECT_EQ(full.note_unfinished("half", import).error().kind(), ErrorKind::kNoSpace);
    EXPECT_EQ(disk.files(), files);
    EXPECT_EQ(full.get("a").value(), root_);
    EXPECT_TRUE(full.unfinished("half"));
    EXPECT_TRUE(full.forget_unfinished("half"));
    EXPECT_TRUE(full.remove("a"));
    EXPECT_TRUE(full.add("b", root_)) << "there is room again";
  });
}

}  // namespace
}  // namespace ramet::commit
