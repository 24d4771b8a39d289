#include "commit/guess_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"

namespace ramet::commit {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

// Of an archive: a header, and the content behind it.
std::string member(const std::string& name, char type = '0', const std::string& content = {}) {
  std::string out(512 + (content.size() + 511) / 512 * 512, '\0');
  std::memcpy(out.data(), name.data(), std::min<size_t>(name.size(), 100));
  std::snprintf(out.data() + 124, 12, "%011o", static_cast<unsigned>(content.size()));
  out[156] = type;
  std::memcpy(out.data() + 257, "ustar", 5);
  std::memcpy(out.data() + 512, content.data(), content.size());
  return out;
}
Result<ImageFormat> guess(const std::string& head) { return guess_format(as_bytes(head)); }

TEST(GuessFormat, WhatHasAMarkIsKnownByIt) {
  EXPECT_EQ(guess("QFI\xfb\0\0\0\3"s), ImageFormat::kQcow2);
  for (const std::string& compressed : {"\x1f\x8b\x08"s, "BZh9"s, "\xfd"s + "7zXZ\0"s, "\x28\xb5\x2f\xfd"s})
    EXPECT_EQ(guess(compressed), ImageFormat::kTar);
  EXPECT_EQ(guess(member("bin/sh")), ImageFormat::kTar);
}

TEST(GuessFormat, WhatSaysNothingIsARawDisk) {
  EXPECT_EQ(guess(""), ImageFormat::kRaw);
  EXPECT_EQ(guess("x"), ImageFormat::kRaw);
  EXPECT_EQ(guess(std::string(4096, '\0')), ImageFormat::kRaw);
  EXPECT_EQ(guess("QFI"), ImageFormat::kRaw);
}

TEST(GuessFormat, AnOciImageIsKnownByItsFirstMember) {
  for (const char* name : {"oci-layout", "./oci-layout", "index.json", "blobs/", "./blobs/sha256/", "blobs/sha256/00"})
    EXPECT_EQ(guess(member(name)), ImageFormat::kOci) << name;
  EXPECT_EQ(guess(member("./", '5') + member("./blobs/", '5')), ImageFormat::kOci);
  EXPECT_EQ(guess(member("pax", 'x', std::string(600, 'p')) + member("oci-layout")), ImageFormat::kOci);
  EXPECT_EQ(guess(member("./", '5') + member("./etc/", '5') + member("./oci-layout")), ImageFormat::kTar);
}

TEST(GuessFormat, WhatIsKnownAndNotTakenIsRefusedWithWhatToDo) {
  for (const auto& [head, name] : {std::pair("KDMV"s, "VMDK"),
                                   {"vhdxfile"s, "VHDX"},
                                   {"conectix"s, "VHD"},
                                   {"QED\0"s, "QED"},
                                   {std::string(64, '<') + "\x7f\x10\xda\xbe"s, "VDI"}}) {
    const Result<ImageFormat> guessed = guess(head);
    ASSERT_FALSE(guessed) << name;
    EXPECT_EQ(guessed.error().message(), "the file looks like "s + name);
    EXPECT_THAT(guessed.error().hint(), HasSubstr("qemu-img convert"));
  }
  EXPECT_THAT(guess("PK\3\4").error().message(), HasSubstr("zip"));
  EXPECT_THAT(guess(member("manifest.json")).error().hint(), HasSubstr("skopeo"));
}

TEST(GuessFormat, AnArchiveOfHeadersThatNeverEndIsATar) {
  std::string head;
  while (head.size() < 2 * kGuessBytes) head += member("./", '5');
  EXPECT_EQ(guess(head), ImageFormat::kTar);
  std::string giant = member("./", '5');
  std::memset(giant.data() + 124, '7', 12);
  EXPECT_EQ(guess(giant), ImageFormat::kTar);
}

}  // namespace
}  // namespace ramet::commit
