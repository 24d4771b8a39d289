#include "chunk/pack.h"

#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "chunk/digest.h"

namespace ramet::chunk {
namespace {

// What one more of it adds to a tail, at most.
constexpr size_t frame_in_tail(uint32_t blocks) {
  return 2 * kMaxVarintBytes + 2 + sizeof(Digest) + blocks * sizeof(BlockPrint);
}
constexpr size_t chunk_in_tail(size_t recipe_bytes) { return sizeof(Digest) + kMaxVarintBytes + recipe_bytes; }

Error in_pack(Error error, const PackId& id) { return std::move(error).with_context("pack " + to_hex(id)); }

}  // namespace

Result<PackId> random_pack_id() {
  PackId id{};
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(id.data()), static_cast<int>(id.size())) != 1)
    return fail(ErrorKind::kUnavailable, "no random number for the name of a pack");
  return id;
}

Result<PackBuilder> PackBuilder::create(const PackId& id) {
  TRY_ASSIGN(MappedRegion room,
             MappedRegion::map(kMaxPackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE));
  return PackBuilder(id, std::move(room));
}

void PackBuilder::restart(const PackId& id) {
  header_ = {id};
  std::ranges::copy(encode_pack_header(header_), room_.data());
  used_ = kPackHeaderBytes;
  tail_bytes_ = 2 * kMaxVarintBytes;
  tail_ = {};
}

bool PackBuilder::has_room_for(uint32_t frame_blocks, size_t recipe_bytes) const {
  const size_t more = frame_blocks * kBlockBytes + frame_in_tail(frame_blocks) + chunk_in_tail(recipe_bytes);
  return used_ + tail_bytes_ + more + kPackFooterBytes + kPackAlignment <= kMaxPackBytes;
}

FrameEntry PackBuilder::add_frame(FrameId id, std::span<const std::byte> plain, std::span<const Digest> blocks,
                                  FrameEncoder& encoder) {
  return append(id, encoder.encode(plain, blocks, room_.bytes().subspan(used_)), blocks);
}

FrameEntry PackBuilder::add_frame(FrameId id, FrameEntry entry, std::span<const std::byte> stored,
                                  std::span<const Digest> blocks) {
  std::memcpy(room_.data() + used_, stored.data(), stored.size());  // std::ranges::copy goes byte by byte
  return append(id, entry, blocks);
}

// Its bytes are there.
FrameEntry PackBuilder::append(FrameId id, FrameEntry entry, std::span<const Digest> blocks) {
  entry.id = id;
  entry.offset = static_cast<uint32_t>(used_);
  used_ += entry.stored_bytes;
  tail_bytes_ += frame_in_tail(entry.blocks);
  tail_.frames.push_back(entry);
  std::vector<BlockPrint>& prints = tail_.prints.emplace_back();
  for (const Digest& block : blocks) prints.push_back(print_of(block));
  return entry;
}

void PackBuilder::add_chunk(const Digest& digest, const Recipe& recipe) {
  tail_bytes_ += chunk_in_tail(encode_recipe(recipe).size());
  tail_.chunks.push_back({digest, recipe});
}

std::span<const std::byte> PackBuilder::finish() {
  const std::string tail = encode_pack_tail(tail_);
  PackFooter footer{
      .id = header_.id, .tail_offset = used_, .tail_bytes = tail.size(), .tail_crc = crc32c(tail.data(), tail.size())};
  std::memcpy(room_.data() + used_, tail.data(), tail.size());
  const size_t end = *align_up(used_ + tail.size() + kPackFooterBytes, kPackAlignment);
  std::ranges::fill(room_.bytes().first(end).subspan(used_ + tail.size()), std::byte{0});
  footer.body_crc = crc32c(room_.data(), end - kPackFooterBytes);
  const auto bytes = encode_pack_footer(footer);
  std::copy(bytes.begin(), bytes.end(), room_.data() + end - bytes.size());
  used_ = end;
  return room_.bytes().first(end);
}

Result<PackTail> check_pack(std::span<const std::byte> bytes, const PackId& id) {
  if (bytes.size() < kPackHeaderBytes + kPackFooterBytes)
    return fail(ErrorKind::kCorrupt, "pack " + to_hex(id) + " has " + std::to_string(bytes.size()) + " bytes only");
  TRY_ASSIGN(const PackHeader header, decode_pack_header(bytes.first<kPackHeaderBytes>()));
  TRY_ASSIGN(const PackFooter footer, decode_pack_footer(bytes.last<kPackFooterBytes>(), bytes.size()));
  if (header.id != id || footer.id != id)
    return fail(ErrorKind::kCorrupt, "pack " + to_hex(id) + " calls itself " + to_hex(footer.id));
  if (crc32c(bytes.data(), bytes.size() - kPackFooterBytes) != footer.body_crc)
    return fail(ErrorKind::kCorrupt, "wrong checksum of the pack");
  return decode_pack_tail(bytes.subspan(footer.tail_offset, footer.tail_bytes), footer);
}

Result<PackTail> read_pack_tail(const PackStorage& storage, const PackId& id) {
  TRY_ASSIGN(const uint64_t size, storage.size_bytes(id));
  if (size < kPackHeaderBytes + kPackFooterBytes)
    return fail(ErrorKind::kCorrupt, "pack " + to_hex(id) + " has " + std::to_string(size) + " bytes only");
  std::array<std::byte, kPackHeaderBytes> header;
  std::array<std::byte, kPackFooterBytes> end;
  TRY(storage.read(id, 0, header));
  TRY(storage.read(id, size - end.size(), end));
  Result<PackHeader> head = decode_pack_header(header);
  if (!head) return tl::unexpected<Error>(in_pack(std::move(head).error(), id));
  Result<PackFooter> footer = decode_pack_footer(end, size);
  if (!footer) return tl::unexpected<Error>(in_pack(std::move(footer).error(), id));
  if (head->id != id || footer->id != id)
    return fail(ErrorKind::kCorrupt, "pack " + to_hex(id) + " calls itself " + to_hex(footer->id));
  std::vector<std::byte> bytes(footer->tail_bytes);
  TRY(storage.read(id, footer->tail_offset, bytes));
  Result<PackTail> tail = decode_pack_tail(bytes, *footer);
  if (!tail) return tl::unexpected<Error>(in_pack(std::move(tail).error(), id));
  return tail;
}

Status read_or_refetch(PackStorage& storage, const PackId& id, const std::function<Status()>& read) {
  Status done = read();
  if (done || (done.error().kind() != ErrorKind::kCorrupt && done.error().kind() != ErrorKind::kIo)) return done;
  const Status fetched = storage.refetch(id);
  if (fetched) log_warn("store: " + done.error().to_string() + "; fetched again");
  return fetched ? read() : done;
}

Status read_frame(PackStorage& storage, const PackId& id, const FrameEntry& entry, FrameDecoder& decoder,
                  std::span<std::byte> plain, FrameProof proof) {
  const std::span<std::byte> stored = decoder.room_for(entry.stored_bytes);
  return read_or_refetch(storage, id, [&]() -> Status {
    TRY(storage.read(id, entry.offset, stored));
    Status decoded = decoder.decode(entry, stored, plain, proof);
    if (!decoded) return tl::unexpected<Error>(in_pack(std::move(decoded).error(), id));
    return {};
  });
}

}  // namespace ramet::chunk
