// Messages of the chunk socket: their bytes, and everything that must not be taken for one.
#include "image/chunk_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/endian.h"
#include "base/file.h"

namespace ramet::image {
namespace {

using ::testing::HasSubstr;

ReaderMessage from_reader(const std::string& packet) { return decode_reader_message(as_bytes(packet)).value(); }
DaemonMessage from_daemon(const std::string& packet) { return decode_daemon_message(as_bytes(packet)).value(); }
std::string why_not(const std::string& packet) { return decode_daemon_message(as_bytes(packet)).error().message(); }
std::string why_not_reader(const std::string& packet) { return decode_reader_message(as_bytes(packet)).error().message(); }

// The same packet with one byte changed.
std::string with(std::string packet, size_t at, uint8_t value) {
  packet.at(at) = static_cast<char>(value);
  return packet;
}

std::string some_blocks(uint64_t count) { return std::string(count * kBlockBytes, 'x'); }

// What tests/golden/make_chunk_socket_v1.py wrote.
std::vector<std::string> golden_messages() {
  const std::string file = read_file(std::string(RAMET_GOLDEN_DIR) + "/chunk_socket_v1.bin").value();
  std::vector<std::string> out;
  for (size_t at = 0; at < file.size(); at += out.back().size()) {
    le32 length;
    std::memcpy(&length, file.data() + at, sizeof length);
    out.push_back(file.substr(at += sizeof length, length));
  }
  return out;
}

TEST(ChunkProtocol, EveryMessageHasTheBytesOfTheFormatsPage) {
  const std::vector<std::string> golden = golden_messages();
  ASSERT_EQ(golden.size(), 9u);
  EXPECT_EQ(encode(ReaderMessage(Hello{"debian-12", {0, 3, 0x3FFFFF}})), golden[0]);
  EXPECT_EQ(encode(ReaderMessage(Ask{0x1122334455667788, 0x3FFFFFFFF, 4096})), golden[1]);
  EXPECT_EQ(encode(ReaderMessage(Returned{3})), golden[2]);
  EXPECT_EQ(encode(DaemonMessage(Welcome{1 << 20, 0x99AABBCCDDEEFF00})), golden[3]);
  EXPECT_EQ(encode(DaemonMessage(Zeros{7, {4096, 100000}})), golden[4]);
  EXPECT_EQ(encode(DaemonMessage(Data{8, {64, 2}, {}})), golden[5].substr(0, 32));  // the head: its blocks come from elsewhere
  EXPECT_EQ(encode(DaemonMessage(Chunk{9, 5})), golden[6]);
  EXPECT_EQ(encode(DaemonMessage(Failed{10, ErrorKind::kNotFound, "no such block"})), golden[7]);
  EXPECT_EQ(encode(DaemonMessage(GiveBack{5})), golden[8]);
}

TEST(ChunkProtocol, EveryMessageOfTheFormatsPageIsRead) {
  const std::vector<std::string> golden = golden_messages();
  EXPECT_EQ(from_reader(golden[0]), ReaderMessage(Hello{"debian-12", {0, 3, 0x3FFFFF}}));
  EXPECT_EQ(from_reader(golden[1]), ReaderMessage(Ask{0x1122334455667788, 0x3FFFFFFFF, 4096}));
  EXPECT_EQ(from_reader(golden[2]), ReaderMessage(Returned{3}));
  EXPECT_EQ(std::get<Welcome>(from_daemon(golden[3])), (Welcome{1 << 20, 0x99AABBCCDDEEFF00}));
  EXPECT_EQ(std::get<Zeros>(from_daemon(golden[4])), (Zeros{7, {4096, 100000}}));
  EXPECT_EQ(std::get<Chunk>(from_daemon(golden[6])), (Chunk{9, 5}));
  EXPECT_EQ(std::get<Failed>(from_daemon(golden[7])), (Failed{10, ErrorKind::kNotFound, "no such block"}));
  EXPECT_EQ(std::get<GiveBack>(from_daemon(golden[8])), GiveBack{5});
}

TEST(ChunkProtocol, DataBorrowsItsBlocksFromThePacket) {
  const std::string packet = golden_messages()[5];
  const DaemonMessage message = from_daemon(packet);
  const Data& data = std::get<Data>(message);
  EXPECT_EQ(data.id, 8u);
  EXPECT_EQ(data.range, (BlockRange{64, 2}));
  EXPECT_EQ(data.bytes.data(), as_bytes(packet).data() + 32);
  EXPECT_EQ(data.bytes.size(), 2 * kBlockBytes);
}

TEST(ChunkProtocol, NoMessageIsReadFromAnyPartOfOneNorWithOneByteMore) {
  for (const std::string& whole : golden_messages()) {
    for (size_t length = 0; length < whole.size(); length++) {
      const std::span<const std::byte> part = as_bytes(whole).first(length);
      EXPECT_FALSE(decode_reader_message(part) || decode_daemon_message(part)) << length << " of " << whole.size();
    }
    const std::string longer = whole + '\0';
    EXPECT_FALSE(decode_reader_message(as_bytes(longer)) || decode_daemon_message(as_bytes(longer))) << whole.size();
  }
}

TEST(ChunkProtocol, ASideDoesNotUnderstandItsOwnMessages) {
  EXPECT_THAT(why_not(encode(ReaderMessage(Returned{3}))), HasSubstr("no message of the daemon has kind 3"));
  EXPECT_THAT(why_not_reader(encode(DaemonMessage(GiveBack{3}))), HasSubstr("no message of a reader has kind 22"));
}

TEST(ChunkProtocol, AnotherVersionIsNamed) {
  const std::string hello = with(encode(ReaderMessage(Hello{})), 4, 2);
  const std::string welcome = with(encode(DaemonMessage(Welcome{5})), 4, 9);
  EXPECT_EQ(decode_reader_message(as_bytes(hello)).error().kind(), ErrorKind::kUnsupported);
  EXPECT_EQ(decode_daemon_message(as_bytes(welcome)).error().kind(), ErrorKind::kUnsupported);
  // Whatever a later version puts behind it.
  EXPECT_EQ(decode_daemon_message(as_bytes(welcome + "more")).error().kind(), ErrorKind::kUnsupported);
}

TEST(ChunkProtocol, NumbersThatNoDiskHasAreRefused) {
  EXPECT_THAT(why_not_reader(encode(ReaderMessage(Ask{1, kMaxDiskBlocks}))), HasSubstr("block 17179869184, the limit is"));
  EXPECT_THAT(why_not_reader(encode(ReaderMessage(Ask{0, 5}))), HasSubstr("id of 0"));
  EXPECT_THAT(why_not_reader(encode(ReaderMessage(Ask{1, 5, 0}))), HasSubstr("an ask for no block"));
  EXPECT_THAT(why_not_reader(encode(ReaderMessage(Returned{1 << 22}))), HasSubstr("chunk 4194304"));
  EXPECT_THAT(why_not(encode(DaemonMessage(Welcome{kMaxDiskBlocks + 1}))), HasSubstr("a disk of"));
  EXPECT_THAT(why_not(encode(DaemonMessage(Zeros{1, {5, 0}}))), HasSubstr("a range of 0 blocks"));
  EXPECT_THAT(why_not(encode(DaemonMessage(Zeros{1, {5, UINT64_MAX}}))), HasSubstr("a range of"));  // the sum would wrap
  EXPECT_THAT(why_not(encode(DaemonMessage(Zeros{0, {5, 1}}))), HasSubstr("id of 0"));
  EXPECT_THAT(why_not(encode(DaemonMessage(Chunk{1, 1 << 22}))), HasSubstr("chunk 4194304"));
  EXPECT_THAT(why_not(encode(DaemonMessage(Chunk{0, 1}))), HasSubstr("id of 0"));
}

TEST(ChunkProtocol, DataMustBeAsManyBlocksAsItSays) {
  const auto packet = [](uint64_t said, uint64_t sent) {
    return encode(DaemonMessage(Data{1, {0, said}, {}})) + some_blocks(sent);
  };
  EXPECT_TRUE(decode_daemon_message(as_bytes(packet(kMaxAnswerBlocks, kMaxAnswerBlocks))));
  EXPECT_LE(packet(kMaxAnswerBlocks, kMaxAnswerBlocks).size(), kMaxChunkMessageBytes);
  EXPECT_THAT(why_not(packet(2, 1)), HasSubstr("4096 bytes for 2 blocks"));
  EXPECT_THAT(why_not(packet(1, 2)), HasSubstr("8192 bytes for 1 blocks"));
  EXPECT_THAT(why_not(packet(kMaxAnswerBlocks + 1, kMaxAnswerBlocks + 1)),
              HasSubstr("an answer of 33 blocks, the limit is 32"));
}

TEST(ChunkProtocol, AHelloHasLimitsAndAnOrder) {
  const auto refused = [](const Hello& hello) { return why_not_reader(encode(ReaderMessage(hello))); };
  std::vector<uint64_t> many(kMaxHeldChunks + 1);
  for (size_t i = 0; i < many.size(); i++) many[i] = i;
  EXPECT_THAT(refused({"", many}), HasSubstr("257 held chunks, the limit is 256"));
  EXPECT_THAT(refused({std::string(kMaxDiskNameBytes + 1, 'n'), {}}), HasSubstr("129 bytes, the limit is 128"));
  EXPECT_THAT(refused({"two\nlines", {}}), HasSubstr("not plain text"));
  EXPECT_THAT(refused({"", {2, 2}}), HasSubstr("ascending"));
  EXPECT_THAT(refused({"", {3, 2}}), HasSubstr("ascending"));
}

TEST(ChunkProtocol, ALongFailureIsCutAndAnUnknownKindIsInternal) {
  const Failed longer{3, ErrorKind::kIo, std::string(5000, 'y')};
  EXPECT_EQ(std::get<Failed>(from_daemon(encode(DaemonMessage(longer)))).message, std::string(kMaxFailureBytes, 'y'));
  const std::string odd = with(encode(DaemonMessage(Failed{3, ErrorKind::kIo, "z"})), 24, 'x');  // "xo"
  EXPECT_EQ(std::get<Failed>(from_daemon(odd)), (Failed{3, ErrorKind::kInternal, "z"}));
}

TEST(ChunkProtocol, ReservedFieldsAreZero) {
  EXPECT_THAT(why_not_reader(with(encode(ReaderMessage(Returned{2})), 4, 1)), HasSubstr("reserved"));
  EXPECT_THAT(why_not(with(encode(DaemonMessage(Zeros{1, {2, 3}})), 7, 1)), HasSubstr("reserved"));
  EXPECT_THAT(why_not(with(encode(DaemonMessage(Failed{1})), 12, 1)), HasSubstr("reserved"));
}

}  // namespace
}  // namespace ramet::image
