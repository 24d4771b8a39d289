// chunk/s3/answer.h - what an S3 server says: lists of objects and errors, in XML, and which kind an error is. The server is
// taken for hostile: everything is bounded, nothing of an answer is believed but what its caller checks. Parsed by pugixml,
// which resolves no entities and reads no document types. Pure. Thread: functions on values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ramet::chunk::s3 {

inline constexpr size_t kMaxListBytes = 4u << 20;  // 1,000 keys of 1 KiB fill a quarter
inline constexpr size_t kMaxKeysPerList = 1000;
inline constexpr size_t kMaxErrorBytes = 64u << 10;

struct ListedObjects {
  std::vector<std::string> keys;
  std::string continuation;  // empty: that was all
};
// The answer to ListObjectsV2.   Errors: kCorrupt.
Result<ListedObjects> parse_list(std::span<const std::byte> xml);

// An answer that is not a success. `body` may be empty (HEAD) or anything at all.
Error error_of(int http_status, std::span<const std::byte> body);
// Whether trying again may help.
bool is_transient(int http_status);

}  // namespace ramet::chunk::s3
