#include "chunk/s3/answer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <pugixml.hpp>

namespace ramet::chunk::s3 {
namespace {

struct CodeKind {
  std::string_view code;
  ErrorKind kind;
};
// What the server's own word for it means; then, for other words or none, the HTTP status. Not in the list: kIo.
constexpr std::array kByCode = {
    CodeKind{"NoSuchKey", ErrorKind::kNotFound},
    CodeKind{"NoSuchBucket", ErrorKind::kUnavailable},  // not the object is missing, but the place
    CodeKind{"PreconditionFailed", ErrorKind::kExists},
    CodeKind{"InvalidRange", ErrorKind::kCorrupt},  // the object is shorter than it should be
    CodeKind{"QuotaExceeded", ErrorKind::kNoSpace},
    CodeKind{"EntityTooLarge", ErrorKind::kInvalid},
    CodeKind{"NotImplemented", ErrorKind::kUnsupported},
};
struct StatusKind {
  int status;
  ErrorKind kind;
};
constexpr std::array kByStatus = {
    StatusKind{301, ErrorKind::kInvalid},  // another region or endpoint
    StatusKind{307, ErrorKind::kInvalid},     StatusKind{401, ErrorKind::kPermission},
    StatusKind{403, ErrorKind::kPermission},  StatusKind{404, ErrorKind::kNotFound},
    StatusKind{409, ErrorKind::kConflict},    StatusKind{412, ErrorKind::kExists},
    StatusKind{413, ErrorKind::kInvalid},     StatusKind{416, ErrorKind::kCorrupt},
    StatusKind{429, ErrorKind::kUnavailable}, StatusKind{500, ErrorKind::kUnavailable},
    StatusKind{501, ErrorKind::kUnsupported}, StatusKind{502, ErrorKind::kUnavailable},
    StatusKind{503, ErrorKind::kUnavailable}, StatusKind{504, ErrorKind::kUnavailable},
    StatusKind{507, ErrorKind::kNoSpace},
};

ErrorKind kind_of(int status, std::string_view code) {
  for (const CodeKind& entry : kByCode)
    if (entry.code == code) return entry.kind;
  for (const StatusKind& entry : kByStatus)
    if (entry.status == status) return entry.kind;
  return ErrorKind::kIo;
}

std::optional<pugi::xml_document> parse(std::span<const std::byte> xml) {
  pugi::xml_document document;
  if (!document.load_buffer(xml.data(), xml.size(), pugi::parse_cdata | pugi::parse_escapes, pugi::encoding_utf8))
    return std::nullopt;
  return document;
}

// For people: a word of the server's, without what could disturb a terminal or fill a log.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string out(text.substr(0, kMost));
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

}  // namespace

Result<ListedObjects> parse_list(std::span<const std::byte> xml) {
  if (xml.size() > kMaxListBytes)
    return fail(ErrorKind::kCorrupt, "a list of objects of " + std::to_string(xml.size()) + " bytes");
  const std::optional<pugi::xml_document> document = parse(xml);
  const pugi::xml_node root = document ? document->child("ListBucketResult") : pugi::xml_node();
  if (!root) return fail(ErrorKind::kCorrupt, "the server's list of objects is not one");
  ListedObjects out;
  for (const pugi::xml_node& object : root.children("Contents")) {
    if (out.keys.size() == kMaxKeysPerList)
      return fail(ErrorKind::kCorrupt, "a list of more than " + std::to_string(kMaxKeysPerList) + " objects");
    out.keys.emplace_back(object.child("Key").child_value());
  }
  if (std::string_view(root.child("IsTruncated").child_value()) != "true") return out;
  out.continuation = root.child("NextContinuationToken").child_value();
  if (out.continuation.empty()) return fail(ErrorKind::kCorrupt, "a list of objects that goes on, but does not say where");
  return out;
}

Error error_of(int http_status, std::span<const std::byte> body) {
  const std::optional<pugi::xml_document> document = parse(body.first(std::min(body.size(), kMaxErrorBytes)));
  const pugi::xml_node root = document ? document->child("Error") : pugi::xml_node();
  const std::string code = root.child("Code").child_value();
  std::string message = "the server answered " + std::to_string(http_status);
  if (!code.empty()) message += " " + shown(code) + ": " + shown(root.child("Message").child_value());
  return Error(kind_of(http_status, code), std::move(message));
}

bool is_transient(int http_status) {
  constexpr std::array kTransient = {429, 500, 502, 503, 504};
  return std::ranges::find(kTransient, http_status) != kTransient.end();
}

}  // namespace ramet::chunk::s3
