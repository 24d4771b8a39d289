// chunk/s3/client.h - the few calls of S3 that a store of packs needs, signed, tried again where that may help.
// Path-style addresses (ENDPOINT/BUCKET/KEY), so that any S3-compatible server will do. Not here: what the objects are.
// Thread: every method from many threads; each call blocks. A resource.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "chunk/s3/answer.h"
#include "chunk/s3/http.h"
#include "chunk/s3/signature.h"

namespace ramet::chunk::s3 {

struct Place {
  std::string endpoint;  // "https://host" or "https://host:port"; without TLS whoever listens reads along
  std::string region = "us-east-1";
  std::string bucket;
  Credentials credentials;
};

class Client {
 public:
  struct Options {
    HttpConnections::Options http;
    int attempts = 5;
    Milliseconds first_pause{100};  // doubled each time, and up to half of it left out by chance
    Milliseconds longest_pause{5'000};
  };
  // Errors: kInvalid (no such form of an endpoint or bucket).
  static Result<std::unique_ptr<Client>> create(Place place, Options options);

  // All of them may fail with kPermission, kUnavailable, kTimeout, kNoMemory, kIo.

  // Creates the object; the server has it durably then. What is there already stays; of two that create it at once both may
  // succeed, where the server knows no conditional writes (If-None-Match).   Errors: kExists, kNoSpace.
  Status put(const std::string& key, std::span<const std::byte> bytes);
  // Errors: kNotFound, kCorrupt (the object is shorter).
  Status get_range(const std::string& key, uint64_t offset, std::span<std::byte> out);
  // Errors: kNotFound.
  Result<uint64_t> size_bytes(const std::string& key);
  // Absent already: success.
  Status remove(const std::string& key);
  // One page of at most so many.   Errors: kCorrupt.
  Result<ListedObjects> list(const std::string& prefix, const std::string& continuation, size_t max_keys = kMaxKeysPerList);

 private:
  struct Call {
    Request request;  // without what each attempt adds
    std::span<const std::byte> body;
    size_t max_answer_bytes = kMaxErrorBytes;
  };
  struct Answered {
    HttpAnswer answer;
    int attempts = 1;
  };
  Client(Place place, std::string host, Options options)
      : place_(std::move(place)), host_(std::move(host)), options_(options), http_(options.http) {}
  Status put_if_absent(Call put, const std::string& key, const std::string& digest);
  Call call(std::string method, const std::string& key) const;
  Result<HttpAnswer> attempt(const Call& call);
  Result<Answered> send(const Call& call);
  void pause(int failures) const;

  const Place place_;
  const std::string host_;
  const Options options_;
  HttpConnections http_;
  std::atomic<bool> knows_conditional_writes_{true};
};

}  // namespace ramet::chunk::s3
