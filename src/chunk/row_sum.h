// chunk/row_sum.h - the checksum that every row of the index carries: CRC-32C of its table's name and its columns.
// SQLite does not notice a flipped bit in what it stores; and where a page of one table is taken for another's, each row by
// itself would still look right. Thread: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "chunk/frame.h"

namespace ramet::chunk {

int64_t sum_of_meta(std::string_view key, int64_t value);
int64_t sum_of_pack(int64_t number, std::span<const std::byte> id, int64_t bytes);
int64_t sum_of_unfinished(std::span<const std::byte> id);
int64_t sum_of_frame(const FrameEntry& frame, int64_t pack);
int64_t sum_of_chunk(std::span<const std::byte> digest, std::span<const std::byte> recipe, int64_t pack);

}  // namespace ramet::chunk
