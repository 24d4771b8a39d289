// What an S3 server may say, and what is made of it.
#include "chunk/s3/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace ramet::chunk::s3 {
namespace {

using ::testing::HasSubstr;

Result<ListedObjects> list(const std::string& xml) { return parse_list(as_bytes(xml)); }

TEST(Answer, AListHasKeysAndMayGoOn) {
  const ListedObjects listed = list(R"(<?xml version="1.0" encoding="UTF-8"?>
      <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
        <Contents><Key>p/packs/00</Key><Size>4096</Size></Contents>
        <Contents><Key>p/packs/a&amp;b</Key></Contents>
        <IsTruncated>true</IsTruncated><NextContinuationToken>more=</NextContinuationToken>
      </ListBucketResult>)")
                                   .value();
  EXPECT_THAT(listed.keys, ::testing::ElementsAre("p/packs/00", "p/packs/a&b"));
  EXPECT_EQ(listed.continuation, "more=");
  EXPECT_EQ(list("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")->continuation, "");
}

TEST(Answer, WhatIsNoListIsRefused) {
  std::string many = "<ListBucketResult>";
  for (size_t i = 0; i <= kMaxKeysPerList; i++) many += "<Contents/>";
  for (const std::string& xml :
       {std::string(), std::string("<Error/>"), std::string("<ListBucketResult>"), std::string("\0\1\2", 3),
        std::string("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"), many + "</ListBucketResult>",
        std::string(kMaxListBytes + 1, ' ')})
    EXPECT_EQ(list(xml).error().kind(), ErrorKind::kCorrupt) << xml.substr(0, 60);
}

TEST(Answer, EntitiesAreNotResolvedAndDepthIsNoDanger) {
  const std::string entity = R"(<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd"> ]>
      <ListBucketResult><Contents><Key>&e;</Key></Contents></ListBucketResult>)";
  EXPECT_EQ(list(entity)->keys.at(0), "&e;");
  std::string deep;
  for (int i = 0; i < 1'000'000; i++) deep += "<a>";
  EXPECT_FALSE(list(deep));
  EXPECT_EQ(list(deep.replace(0, 3, "<ListBucketResult>")).error().kind(), ErrorKind::kCorrupt);
}

TEST(Answer, ErrorsHaveKindsByTheServersWordAndElseByStatus) {
  const auto kind = [](int status, const std::string& body) { return error_of(status, as_bytes(body)).kind(); };
  const auto code = [](const std::string& word) { return "<Error><Code>" + word + "</Code></Error>"; };
  EXPECT_EQ(kind(404, code("NoSuchKey")), ErrorKind::kNotFound);
  EXPECT_EQ(kind(404, ""), ErrorKind::kNotFound);
  EXPECT_EQ(kind(404, code("NoSuchBucket")), ErrorKind::kUnavailable);
  EXPECT_EQ(kind(403, code("SignatureDoesNotMatch")), ErrorKind::kPermission);
  EXPECT_EQ(kind(412, code("PreconditionFailed")), ErrorKind::kExists);
  EXPECT_EQ(kind(416, code("InvalidRange")), ErrorKind::kCorrupt);
  EXPECT_EQ(kind(503, code("SlowDown")), ErrorKind::kUnavailable);
  EXPECT_EQ(kind(501, code("NotImplemented")), ErrorKind::kUnsupported);
  EXPECT_EQ(kind(418, "<html>"), ErrorKind::kIo);
}

TEST(Answer, AnErrorIsShownInOneBoundedLine) {
  const std::string body = "<Error><Code>Bad\x1b[31m</Code><Message>" + std::string(10'000, 'x') + "\n</Message></Error>";
  const std::string message = error_of(400, as_bytes(body)).message();
  EXPECT_THAT(message, HasSubstr("Bad?[31m"));
  EXPECT_LT(message.size(), 500u);
}

}  // namespace
}  // namespace ramet::chunk::s3
