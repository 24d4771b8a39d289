// chunk/varint.h - unsigned integers of variable length (LEB128: seven bits a byte, low ones first), for recipes and tails.
// One way to write each number: a longer form than needed is malformed. Thread: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ramet::chunk {

inline constexpr size_t kMaxVarintBytes = 10;

void append_varint(std::string& out, uint64_t value);

// Takes numbers and bytes from the front of a buffer; every answer is nullopt or false once something did not fit.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> data) : rest_(data) {}
  std::optional<uint64_t> varint();
  std::optional<uint8_t> byte();
  // Copies out.size() bytes.
  bool bytes(std::span<std::byte> out);
  std::optional<std::span<const std::byte>> view(size_t size);
  bool at_end() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace ramet::chunk
