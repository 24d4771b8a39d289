// Signatures against the examples of the Amazon S3 API Reference ("Examples: Signature Calculations").
#include "chunk/s3/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "chunk/digest.h"

namespace ramet::chunk::s3 {
namespace {

const Credentials kExample = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};

Request example(const std::string& method, const std::string& path, const std::string& payload = "") {
  Request request{.method = method, .path = path};
  request.payload_sha256 = sha256(as_bytes(payload)).to_hex();
  request.headers = {{"host", "examplebucket.s3.amazonaws.com"},
                     {"x-amz-date", "20130524T000000Z"},
                     {"x-amz-content-sha256", request.payload_sha256}};
  return request;
}

TEST(Signature, GetObject) {
  Request request = example("GET", "/test.txt");
  request.headers["range"] = "bytes=0-9";
  EXPECT_EQ(authorization(request, kExample, "us-east-1"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(Signature, PutObject) {
  Request request = example("PUT", "/test$file.text", "Welcome to Amazon S3.");
  request.headers["date"] = "Fri, 24 May 2013 00:00:00 GMT";
  request.headers["x-amz-storage-class"] = "REDUCED_REDUNDANCY";
  EXPECT_THAT(authorization(request, kExample, "us-east-1"),
              ::testing::EndsWith("Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

TEST(Signature, AParameterWithoutValue) {
  Request request = example("GET", "/");
  request.query = {{"lifecycle", ""}};
  EXPECT_THAT(authorization(request, kExample, "us-east-1"),
              ::testing::EndsWith("Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

TEST(Signature, ListObjects) {
  Request request = example("GET", "/");
  request.query = {{"max-keys", "2"}, {"prefix", "J"}};
  EXPECT_THAT(authorization(request, kExample, "us-east-1"),
              ::testing::EndsWith("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(Signature, UrisAreEncodedAsS3WantsThem) {
  EXPECT_EQ(uri_encode("a/b c+d~é", Slashes::kKeep), "a/b%20c%2Bd~%C3%A9");
  EXPECT_EQ(uri_encode("a/b", Slashes::kEncode), "a%2Fb");
}

}  // namespace
}  // namespace ramet::chunk::s3
