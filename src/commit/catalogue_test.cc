// Images by name: what was added is there, and nothing else is.
#include "commit/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

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

}  // namespace
}  // namespace ramet::commit
