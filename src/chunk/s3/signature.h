// chunk/s3/signature.h - AWS Signature Version 4, as S3 wants it: the Authorization header of a request whose headers are all
// signed. Pure: no clock, no I/O. Thread: functions on values.
// Source: Amazon S3 API Reference, "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)".
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

namespace ramet::chunk::s3 {

// Never part of an error or a log line.
struct Credentials {
  std::string access_key, secret_key;
  std::string session_token;  // may be empty
};

// What is signed. Names of headers are in lower case, values without spaces around them; "host" and "x-amz-date" must be among
// them.
struct Request {
  std::string method;
  std::string path;                          // absolute, not encoded: "/bucket/key"
  std::map<std::string, std::string> query;  // not encoded
  std::map<std::string, std::string> headers;
  std::string payload_sha256;  // hexadecimal
};

// As in a URL: everything but letters, digits, -, ., _ and ~ as %XX; slashes as they are if asked for.
enum class Slashes { kEncode, kKeep };
std::string uri_encode(std::string_view text, Slashes slashes);
std::string canonical_query(const Request& request);

std::string authorization(const Request& request, const Credentials& credentials, std::string_view region);

}  // namespace ramet::chunk::s3
