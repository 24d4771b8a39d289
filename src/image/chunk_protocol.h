// image/chunk_protocol.h - what a reader of a chunked disk and the daemon say to each other (docs/formats/chunk_socket.md): one
// message per SOCK_SEQPACKET packet. The reader asks by block and never by digest, so it can reach nothing but the disk that
// the connection was bound to. Pure: bytes <-> structs, no I/O, nothing allocated before its limit was checked. Both sides take
// the other for hostile. Thread: values.
//
//   reader                                daemon
//   Hello{name, held chunks} ---------->
//              <-------------------------- Welcome{size, content} | Failed{id 0}
//   Ask{id, block, count} ------------->
//              <-------------------------- one of Zeros | Data | Chunk + descriptor | Failed, with that id; in any order
//              <-------------------------- GiveBack{chunk}     at any time: the cache wants its space back
//   Returned{chunk} ------------------->   one descriptor of it is closed, asked for or not
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "image/block.h"

namespace ramet::image {

inline constexpr uint32_t kChunkProtocolVersion = 1;
inline constexpr size_t kMaxHeldChunks = 256;     // descriptors that one reader has, open asks counted in
inline constexpr uint64_t kMaxAnswerBlocks = 32;  // of data, in one answer: a frame
inline constexpr size_t kMaxDiskNameBytes = 128;
inline constexpr size_t kMaxFailureBytes = 512;  // of text
inline constexpr size_t kMaxChunkMessageBytes = kMaxAnswerBlocks * kBlockBytes + 64;
inline constexpr size_t kMaxOpenAsks = 64;  // of one connection, unanswered

// ---- from the reader ----
struct Hello {
  std::string disk;  // a name; empty: the disk that the daemon bound this connection to
  // Ascending: chunks whose descriptors it has already, inherited by fork(2), or from a daemon that died.
  std::vector<uint64_t> held;
  friend bool operator==(const Hello&, const Hello&) = default;
};
struct Ask {
  uint64_t id = 0;  // not 0; the reader's own
  uint64_t block = 0;
  uint32_t count = 1;  // of blocks wanted from there on; not 0. An answer may have fewer
  friend bool operator==(const Ask&, const Ask&) = default;
};
struct Returned {
  uint64_t chunk = 0;
  friend bool operator==(const Returned&, const Returned&) = default;
};
using ReaderMessage = std::variant<Hello, Ask, Returned>;

// ---- from the daemon ----
struct Welcome {
  uint64_t blocks = 0;   // size of the disk
  uint64_t content = 0;  // other disks have another number: a name may have come to mean one of them meanwhile
  friend bool operator==(const Welcome&, const Welcome&) = default;
};
// All of the range, which holds the block asked for and may span chunks, is zero.
struct Zeros {
  uint64_t id = 0;
  BlockRange range;
  friend bool operator==(const Zeros&, const Zeros&) = default;
};
// The range holds the block asked for; `bytes` borrows from the packet.
struct Data {
  uint64_t id = 0;
  BlockRange range;
  std::span<const std::byte> bytes;
};
// A descriptor of the whole chunk comes with the packet: block n of it lies at n * 4096, blocks past the file's end are zero.
struct Chunk {
  uint64_t id = 0;
  uint64_t chunk = 0;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};
struct Failed {
  uint64_t id = 0;  // 0: the connection as a whole
  ErrorKind kind = ErrorKind::kIo;
  std::string message;
  friend bool operator==(const Failed&, const Failed&) = default;
};
struct GiveBack {
  uint64_t chunk = 0;
  friend bool operator==(const GiveBack&, const GiveBack&) = default;
};
using DaemonMessage = std::variant<Welcome, Zeros, Data, Chunk, Failed, GiveBack>;

// Of Data only the head: the blocks follow it in the packet. A long failure is cut.
std::string encode(const ReaderMessage& message);
std::string encode(const DaemonMessage& message);
// Errors: kCorrupt with what is wrong, kUnsupported (another version).
Result<ReaderMessage> decode_reader_message(std::span<const std::byte> packet);
Result<DaemonMessage> decode_daemon_message(std::span<const std::byte> packet);

}  // namespace ramet::image
