#include "image/chunk_protocol.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/endian.h"

namespace ramet::image {
namespace {

enum Kind : uint32_t {
  kHello = 1,
  kAsk = 2,
  kReturned = 3,
  kWelcome = 17,
  kZeros = 18,
  kData = 19,
  kChunk = 20,
  kFailed = 21,
  kGiveBack = 22,
};

struct RawHello {  // the name and the chunks' numbers follow
  le32 kind, version;
  le32 disk_bytes, held;
};
struct RawWelcome {
  le32 kind, version;
  le64 blocks, content;
};
struct RawNumbered {  // GiveBack, Returned
  le32 kind, reserved;
  le64 chunk;
};
struct RawAsk {
  le32 kind, count;
  le64 id, block;
};
struct RawRange {  // Zeros, Data; the blocks of Data follow
  le32 kind, reserved;
  le64 id, first, count;
};
struct RawChunk {
  le32 kind, reserved;
  le64 id, chunk;
};
struct RawFailed {  // the word for its kind and the text follow
  le32 kind, word_bytes, text_bytes, reserved;
  le64 id;
};
static_assert(sizeof(RawHello) == 16 && sizeof(RawWelcome) == 24 && sizeof(RawNumbered) == 16 && sizeof(RawAsk) == 24);
static_assert(sizeof(RawRange) == 32 && sizeof(RawChunk) == 24 && sizeof(RawFailed) == 24);
static_assert(sizeof(RawRange) + kMaxAnswerBlocks * kBlockBytes <= kMaxChunkMessageBytes);

constexpr size_t kMaxWordBytes = 32;

// ---- writing ----

template <class Raw>
std::string begin(Kind kind, Raw raw) {
  raw.kind = kind;
  return {reinterpret_cast<const char*>(&raw), sizeof raw};
}

std::string encode_one(const Hello& m) {
  std::string out = begin(kHello, RawHello{.version = kChunkProtocolVersion,
                                           .disk_bytes = static_cast<uint32_t>(m.disk.size()),
                                           .held = static_cast<uint32_t>(m.held.size())});
  out += m.disk;
  for (const uint64_t chunk : m.held) {
    const le64 raw = chunk;
    out.append(reinterpret_cast<const char*>(&raw), sizeof raw);
  }
  return out;
}
std::string encode_one(const Ask& m) { return begin(kAsk, RawAsk{.count = m.count, .id = m.id, .block = m.block}); }
std::string encode_one(const Returned& m) { return begin(kReturned, RawNumbered{.chunk = m.chunk}); }
std::string encode_one(const Welcome& m) {
  return begin(kWelcome, RawWelcome{.version = kChunkProtocolVersion, .blocks = m.blocks, .content = m.content});
}
std::string encode_one(const Zeros& m) {
  return begin(kZeros, RawRange{.id = m.id, .first = m.range.first, .count = m.range.count});
}
std::string encode_one(const Data& m) {
  return begin(kData, RawRange{.id = m.id, .first = m.range.first, .count = m.range.count});
}
std::string encode_one(const Chunk& m) { return begin(kChunk, RawChunk{.id = m.id, .chunk = m.chunk}); }
std::string encode_one(const Failed& m) {
  const std::string_view word = kind_name(m.kind);
  const std::string_view text = std::string_view(m.message).substr(0, kMaxFailureBytes);
  std::string out = begin(kFailed, RawFailed{.word_bytes = static_cast<uint32_t>(word.size()),
                                             .text_bytes = static_cast<uint32_t>(text.size()),
                                             .id = m.id});
  return out.append(word).append(text);
}
std::string encode_one(const GiveBack& m) { return begin(kGiveBack, RawNumbered{.chunk = m.chunk}); }

// ---- reading ----

tl::unexpected<Error> corrupt(const std::string& what) { return fail(ErrorKind::kCorrupt, "chunk socket: " + what); }

Status check(bool good, const std::string& what) { return good ? Status{} : Status(corrupt(what)); }

Status check_version(uint32_t version) {
  if (version == kChunkProtocolVersion) return {};
  return fail(ErrorKind::kUnsupported, "chunk socket: peer speaks version " + std::to_string(version) + ", this program " +
                                           std::to_string(kChunkProtocolVersion));
}
Status check_block(uint64_t block) {
  return check(block < kMaxDiskBlocks, "block " + std::to_string(block) + ", the limit is " + std::to_string(kMaxDiskBlocks));
}
Status check_chunk(uint64_t chunk) {
  constexpr uint64_t kChunks = kMaxDiskBlocks / kChunkBlocks;
  return check(chunk < kChunks, "chunk " + std::to_string(chunk) + ", the limit is " + std::to_string(kChunks));
}
Status check_range(BlockRange range) {
  return check(range.count > 0 && range_fits(range, kMaxDiskBlocks),
               "a range of " + std::to_string(range.count) + " blocks from " + std::to_string(range.first));
}
Status check_id(uint64_t id) { return check(id != 0, "an id of 0"); }

// The struct at the front of a packet; what follows it is `rest`.
template <class Raw>
Result<Raw> front(std::span<const std::byte> packet) {
  Raw raw;
  if (packet.size() < sizeof raw)
    return corrupt("a message of " + std::to_string(packet.size()) + " bytes, not " + std::to_string(sizeof raw));
  std::memcpy(&raw, packet.data(), sizeof raw);
  if constexpr (requires { raw.reserved; }) TRY(check(raw.reserved == 0, "a reserved field is not 0"));
  return raw;
}
// Nothing follows it.
template <class Raw>
Result<Raw> whole(std::span<const std::byte> packet) {
  TRY(check(packet.size() <= sizeof(Raw),
            "a message of " + std::to_string(packet.size()) + " bytes, not " + std::to_string(sizeof(Raw))));
  return front<Raw>(packet);
}

uint32_t kind_of(std::span<const std::byte> packet) {
  le32 kind;
  if (packet.size() >= sizeof kind) std::memcpy(&kind, packet.data(), sizeof kind);
  return kind;
}

std::string text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Result<std::vector<uint64_t>> decode_held(std::span<const std::byte> bytes) {
  std::vector<uint64_t> held(bytes.size() / sizeof(le64));
  for (size_t i = 0; i < held.size(); i++) {
    le64 raw;
    std::memcpy(&raw, bytes.data() + i * sizeof raw, sizeof raw);
    held[i] = raw;
    TRY(check_chunk(held[i]));
    TRY(check(i == 0 || held[i - 1] < held[i], "held chunks are not in ascending order"));
  }
  return held;
}

Result<ReaderMessage> decode_hello(std::span<const std::byte> packet) {
  TRY_ASSIGN(const RawHello raw, front<RawHello>(packet));
  TRY(check_version(raw.version));
  TRY(check(raw.disk_bytes <= kMaxDiskNameBytes, "a disk's name of " + std::to_string(raw.disk_bytes) +
                                                     " bytes, the limit is " + std::to_string(kMaxDiskNameBytes)));
  TRY(check(raw.held <= kMaxHeldChunks,
            std::to_string(raw.held) + " held chunks, the limit is " + std::to_string(kMaxHeldChunks)));
  const std::span<const std::byte> rest = packet.subspan(sizeof raw);
  TRY(check(rest.size() == raw.disk_bytes + raw.held * sizeof(le64), "a hello of another length than it says"));
  Hello hello{.disk = text(rest.first(raw.disk_bytes))};
  TRY(check(std::ranges::all_of(hello.disk, [](char c) { return c > ' ' && c < 127; }), "a disk's name is not plain text"));
  TRY_ASSIGN(hello.held, decode_held(rest.subspan(raw.disk_bytes)));
  return hello;
}

Result<ReaderMessage> decode_ask(std::span<const std::byte> packet) {
  TRY_ASSIGN(const RawAsk raw, whole<RawAsk>(packet));
  TRY(check_id(raw.id));
  TRY(check_block(raw.block));
  TRY(check(raw.count > 0, "an ask for no block"));
  return Ask{raw.id, raw.block, raw.count};
}

template <class Message, class Variant>
Result<Variant> decode_numbered(std::span<const std::byte> packet) {
  TRY_ASSIGN(const RawNumbered raw, whole<RawNumbered>(packet));
  TRY(check_chunk(raw.chunk));
  return Message{raw.chunk};
}

Result<DaemonMessage> decode_welcome(std::span<const std::byte> packet) {
  TRY_ASSIGN(const RawWelcome raw, front<RawWelcome>(packet));
  TRY(check_version(raw.version));
  TRY(whole<RawWelcome>(packet));
  TRY(check(raw.blocks <= kMaxDiskBlocks,
            "a disk of " + std::to_string(raw.blocks) + " blocks, the limit is " + std::to_string(kMaxDiskBlocks)));
  return Welcome{raw.blocks, raw.content};
}

Result<DaemonMessage> decode_zeros(std::span<const std::byte> packet) {
  TRY_ASSIGN(const RawRange raw, whole<RawRange>(packet));
  const Zeros zeros{raw.id, {raw.first, raw.count}};
  TRY(check_id(zeros.id));
  TRY(check_range(zeros.range));
  return zeros;
}

Result<DaemonMessage> decode_data(std::span<const std::byte> packet) {
  TRY_ASSIGN(const RawRange raw, front<RawRange>(packet));
  const Data data{raw.id, {raw.first, raw.count}, packet.subspan(sizeof raw)};
  TRY(check_id(data.id));
  TRY(check_range(data.range));
  TRY(check(data.range.count <= kMaxAnswerBlocks,
            "an answer of " + std::to_string(data.range.count) + " blocks, the limit is " + std::to_string(kMaxAnswerBlocks)));
  TRY(check(data.bytes.size() == data.range.count * kBlockBytes,
            std::to_string(data.bytes.size()) + " bytes for " + std::to_string(data.range.count) + " blocks"));
  return data;
}

Result<DaemonMessage> decode_chunk(std::span<const std::byte> packet) {
  TRY_ASSIGN(const RawChunk raw, whole<RawChunk>(packet));
  TRY(check_id(raw.id));
  TRY(check_chunk(raw.chunk));
  return Chunk{raw.id, raw.chunk};
}

Result<DaemonMessage> decode_failed(std::span<const std::byte> packet) {
  TRY_ASSIGN(const RawFailed raw, front<RawFailed>(packet));
  TRY(check(raw.word_bytes <= kMaxWordBytes && raw.text_bytes <= kMaxFailureBytes,
            "a failure of " + std::to_string(raw.text_bytes) + " bytes, the limit is " + std::to_string(kMaxFailureBytes)));
  const std::span<const std::byte> rest = packet.subspan(sizeof raw);
  TRY(check(rest.size() == raw.word_bytes + raw.text_bytes, "a failure of another length than it says"));
  return Failed{raw.id, kind_from_name(text(rest.first(raw.word_bytes))), text(rest.subspan(raw.word_bytes))};
}

}  // namespace

std::string encode(const ReaderMessage& message) {
  return std::visit([](const auto& m) { return encode_one(m); }, message);
}
std::string encode(const DaemonMessage& message) {
  return std::visit([](const auto& m) { return encode_one(m); }, message);
}

Result<ReaderMessage> decode_reader_message(std::span<const std::byte> packet) {
  const uint32_t kind = kind_of(packet);
  switch (kind) {
    case kHello: return decode_hello(packet);
    case kAsk: return decode_ask(packet);
    case kReturned: return decode_numbered<Returned, ReaderMessage>(packet);
    default: return corrupt("no message of a reader has kind " + std::to_string(kind));
  }
}

Result<DaemonMessage> decode_daemon_message(std::span<const std::byte> packet) {
  const uint32_t kind = kind_of(packet);
  switch (kind) {
    case kWelcome: return decode_welcome(packet);
    case kZeros: return decode_zeros(packet);
    case kData: return decode_data(packet);
    case kChunk: return decode_chunk(packet);
    case kFailed: return decode_failed(packet);
    case kGiveBack: return decode_numbered<GiveBack, DaemonMessage>(packet);
    default: return corrupt("no message of the daemon has kind " + std::to_string(kind));
  }
}

}  // namespace ramet::image
