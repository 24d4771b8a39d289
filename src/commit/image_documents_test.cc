// What we read of foreign images ourselves before anything else does: qcow2 headers and OCI documents, those of the fuzz
// targets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "chunk/digest.h"
#include "commit/oci_documents.h"
#include "commit/oci_json.h"
#include "commit/qcow2_header.h"
#include "commit/unfinished_format.h"

namespace ramet::commit {
namespace {

using ::testing::HasSubstr;

// Without the first byte, which is the fuzz target's.
std::string sample(const std::string& target, const std::string& name) {
  return read_file(std::string(RAMET_SOURCE_DIR) + "/fuzz/corpus/" + target + "/" + name).value().substr(1);
}
Result<Qcow2Header> header(const std::string& name) {
  const std::string bytes = sample("image_header_fuzz", name);
  return decode_qcow2_header(as_bytes(bytes), 1ull << 40);
}

TEST(Qcow2Header, BothVersionsAreRead) {
  EXPECT_EQ(header("version-2")->disk_bytes, 1u << 30);
  EXPECT_EQ(header("version-3")->disk_bytes, 1u << 30);
}

struct Refused {
  const char* name;
  ErrorKind kind;
  const char* reason;
};
class RefusedQcow2 : public ::testing::TestWithParam<Refused> {};
TEST_P(RefusedQcow2, IsRefused) {
  const Result<Qcow2Header> read = header(GetParam().name);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind(), GetParam().kind);
  EXPECT_THAT(read.error().message(), HasSubstr(GetParam().reason));
}
INSTANTIATE_TEST_SUITE_P(Samples, RefusedQcow2,
                         ::testing::Values(Refused{"backing-file", ErrorKind::kInvalid, "has a backing file"},
                                           Refused{"encrypted", ErrorKind::kInvalid, "is encrypted"},
                                           Refused{"data-file", ErrorKind::kInvalid, "keeps its data in another file"},
                                           Refused{"marked-corrupt", ErrorKind::kInvalid, "is marked as corrupt"},
                                           Refused{"unknown-feature", ErrorKind::kUnsupported, "features that are not known"},
                                           Refused{"later-version", ErrorKind::kUnsupported, "version 4"},
                                           Refused{"giant", ErrorKind::kInvalid, "the limits are 1 and 1099511627776"},
                                           Refused{"empty", ErrorKind::kInvalid, "a disk of 0 bytes"},
                                           Refused{"cut", ErrorKind::kCorrupt, "ends in its header"},
                                           Refused{"other-magic", ErrorKind::kCorrupt, "no qcow2 image"}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::erase(name, '-');
                           return name;
                         });

TEST(OciDocuments, AreReadAsTheyWereMeant) {
  const OciLayer layer{chunk::sha256(as_bytes("a tar")), 5ull << 33};
  const OciDocuments documents = oci_documents(layer, "app");
  const OciDescriptor image = choose_oci_image(decode_oci_index(documents.index.text).value(), "app").value();
  EXPECT_EQ(image.platform, "linux/amd64");
  EXPECT_EQ(documents.manifest.path, "blobs/sha256/" + image.digest.to_hex());
  EXPECT_EQ(image.bytes, documents.manifest.text.size());
  EXPECT_EQ(image.digest, chunk::sha256(as_bytes(documents.manifest.text)));
  const std::vector<OciDescriptor> layers = decode_oci_manifest(documents.manifest.text).value();
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].digest, layer.digest);
  EXPECT_EQ(layers[0].bytes, layer.bytes);
}

// Others have taken copies: what was written stays what is written.
TEST(OciDocuments, AreTheSameForEver) {
  const OciDocuments documents = oci_documents({{}, 10}, "app");
  const std::string zeros(64, '0');
  EXPECT_EQ(documents.layout.text, R"({"imageLayoutVersion":"1.0.0"})");
  EXPECT_EQ(
      documents.config.text,
      R"({"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":["sha256:)" + zeros + R"("]}})");
  EXPECT_EQ(documents.manifest.text,
            R"({"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":)"
            R"({"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:)" +
                documents.config.path.substr(13) + R"(","size":)" + std::to_string(documents.config.text.size()) +
                R"(},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:)" + zeros +
                R"(","size":10}]})");
}

TEST(OciJson, TheImageForThisPlatformIsChosen) {
  const std::vector<OciDescriptor> images = decode_oci_index(sample("oci_json_fuzz", "index")).value();
  ASSERT_EQ(images.size(), 2u);
  EXPECT_EQ(choose_oci_image(images, "")->platform, "linux/amd64");
  EXPECT_EQ(choose_oci_image(images, "latest")->bytes, 100u);
  const Error other = choose_oci_image(images, "other").error();
  EXPECT_EQ(other.kind(), ErrorKind::kNotFound);
  EXPECT_THAT(other.message(), HasSubstr("tags there: 'latest'"));
}

TEST(OciJson, SeveralImagesNeedATag) {
  std::vector<OciDescriptor> images = decode_oci_index(sample("oci_json_fuzz", "index")).value();
  images[1].platform = "";
  images[1].tag = "second";
  EXPECT_THAT(choose_oci_image(images, "").error().message(), HasSubstr("'latest', 'second'"));
  EXPECT_EQ(choose_oci_image(images, "second")->tag, "second");
}

TEST(OciJson, LayersStandInTheirOrder) {
  const std::vector<OciDescriptor> layers = decode_oci_manifest(sample("oci_json_fuzz", "manifest")).value();
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_TRUE(layers[0].digest.to_hex().starts_with("abab"));
}

TEST(OciJson, HostileDocumentsAreRefused) {
  const auto index = [](const char* name) { return decode_oci_index(sample("oci_json_fuzz", name)).error(); };
  const auto manifest = [](const char* name) { return decode_oci_manifest(sample("oci_json_fuzz", name)).error(); };
  EXPECT_THAT(index("digest-is-a-path").message(), HasSubstr("sha256:../../../etc/passwd"));
  EXPECT_EQ(index("digest-is-a-path").kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(index("digest-of-another-kind").kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(index("size-negative").kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(index("too-deep").kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(index("list-is-none").kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(index("entry-is-none").kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(manifest("size-not-whole").kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(manifest("too-many").kind(), ErrorKind::kInvalid);
  EXPECT_THAT(manifest("layer-elsewhere").message(), HasSubstr("nondistributable"));
}

TEST(UnfinishedFormat, ComesBackAndEveryFlippedByteIsAnError) {
  Unfinished import{.next_chunk = 3, .root = {image::ImageKind::kDisk, 5 * image::kChunkBlocks, {image::kZeros}}};
  import.source.bytes[0] = std::byte{7};
  std::string bytes = encode_unfinished(import);
  EXPECT_EQ(decode_unfinished(as_bytes(bytes)).value(), import);
  for (char& c : bytes) {
    c ^= 1;
    EXPECT_FALSE(decode_unfinished(as_bytes(bytes)));
    c ^= 1;
  }
  import.next_chunk = 6;
  bytes = encode_unfinished(import);
  EXPECT_EQ(decode_unfinished(as_bytes(bytes)).error().kind(), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace ramet::commit
