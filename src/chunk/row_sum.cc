#include "chunk/row_sum.h"

#include <string>

#include "base/crc32c.h"
#include "base/endian.h"

namespace ramet::chunk {
namespace {

class RowSum {
 public:
  explicit RowSum(std::string_view table) : bytes_(table) {}
  RowSum& add(int64_t number) {
    const le64 bytes = static_cast<uint64_t>(number);
    bytes_.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    return *this;
  }
  RowSum& add(std::span<const std::byte> blob) {
    add(static_cast<int64_t>(blob.size()));
    bytes_.append(reinterpret_cast<const char*>(blob.data()), blob.size());
    return *this;
  }
  int64_t value() const { return crc32c(bytes_.data(), bytes_.size()); }

 private:
  std::string bytes_;
};

}  // namespace

int64_t sum_of_pack(int64_t number, std::span<const std::byte> id, int64_t bytes) {
  return RowSum("packs").add(number).add(id).add(bytes).value();
}

int64_t sum_of_frame(const FrameEntry& e, int64_t pack) {
  RowSum sum("frames");
  for (const int64_t column : {static_cast<int64_t>(e.id), pack, int64_t{e.offset}, int64_t{e.stored_bytes}, int64_t{e.blocks},
                               static_cast<int64_t>(e.codec)})
    sum.add(column);
  return sum.add(e.digest.bytes).value();
}

int64_t sum_of_chunk(std::span<const std::byte> digest, std::span<const std::byte> recipe, int64_t pack) {
  return RowSum("chunks").add(digest).add(recipe).add(pack).value();
}

int64_t sum_of_unfinished(std::span<const std::byte> id) { return RowSum("unfinished").add(id).value(); }

int64_t sum_of_meta(std::string_view key, int64_t value) { return RowSum("meta " + std::string(key)).add(value).value(); }

}  // namespace ramet::chunk
