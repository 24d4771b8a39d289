#include "chunk/s3/signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/file.h"
#include "chunk/digest.h"

namespace ramet::chunk::s3 {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

Digest hmac(std::span<const std::byte> key, std::string_view text) {
  Digest out;
  ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
         text.size(), reinterpret_cast<unsigned char*>(out.bytes.data()), nullptr);
  return out;
}

std::string signed_headers(const Request& request) {
  std::string out;
  for (const auto& [name, value] : request.headers) out += (out.empty() ? "" : ";") + name;
  return out;
}

std::string canonical_request(const Request& request) {
  std::string out = request.method + "\n" + uri_encode(request.path, Slashes::kKeep) + "\n" + canonical_query(request) + "\n";
  for (const auto& [name, value] : request.headers) out += name + ":" + value + "\n";
  return out + "\n" + signed_headers(request) + "\n" + request.payload_sha256;
}

Digest signing_key(const Credentials& credentials, std::string_view day, std::string_view region) {
  const Digest of_day = hmac(as_bytes("AWS4" + credentials.secret_key), day);
  const Digest of_region = hmac(of_day.bytes, region);
  const Digest of_service = hmac(of_region.bytes, "s3");
  return hmac(of_service.bytes, "aws4_request");
}

}  // namespace

std::string uri_encode(std::string_view text, Slashes slashes) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (kPlain.find(c) != std::string_view::npos || (c == '/' && slashes == Slashes::kKeep)) {
      out += c;
      continue;
    }
    const unsigned value = static_cast<unsigned char>(c);
    out += {'%', kDigits[value >> 4], kDigits[value & 15]};
  }
  return out;
}

std::string canonical_query(const Request& request) {
  std::string out;
  for (const auto& [name, value] : request.query) {
    if (!out.empty()) out += "&";
    out += uri_encode(name, Slashes::kEncode) + "=" + uri_encode(value, Slashes::kEncode);
  }
  return out;
}

std::string authorization(const Request& request, const Credentials& credentials, std::string_view region) {
  const std::string& date = request.headers.at("x-amz-date");
  const std::string day = date.substr(0, 8), scope = day + "/" + std::string(region) + "/s3/aws4_request";
  const std::string to_sign =
      std::string(kAlgorithm) + "\n" + date + "\n" + scope + "\n" + sha256(as_bytes(canonical_request(request))).to_hex();
  const Digest signature = hmac(signing_key(credentials, day, region).bytes, to_sign);
  return std::string(kAlgorithm) + " Credential=" + credentials.access_key + "/" + scope +
         ",SignedHeaders=" + signed_headers(request) + ",Signature=" + signature.to_hex();
}

}  // namespace ramet::chunk::s3
