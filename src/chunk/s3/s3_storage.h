// chunk/s3/s3_storage.h - packs as objects of a bucket: PREFIX/packs/ID, ID in hexadecimal. The prefix keeps dedup domains
// apart. Whatever else is in the bucket is left alone. An error may also be kPermission, kTimeout, kNoMemory or kUnsupported.
// Thread: as PackStorage; calls block, for minutes at worst. A resource.
#pragma once

#include <memory>
#include <string>

#include "chunk/pack_storage.h"
#include "chunk/s3/client.h"

namespace ramet::chunk::s3 {

class S3Storage final : public PackStorage {
 public:
  // `prefix`: of letters, digits, - _ . and /, for instance "ramet/DOMAIN". Asks nothing of the server.   Errors: kInvalid.
  static Result<std::unique_ptr<S3Storage>> create(std::unique_ptr<Client> client, std::string prefix);

  Status write(const PackId& id, std::span<const std::byte> bytes) override;
  Status read(const PackId& id, uint64_t offset, std::span<std::byte> out) const override;
  Result<uint64_t> size_bytes(const PackId& id) const override;
  Status remove(const PackId& id) override;
  Result<std::vector<PackId>> list() const override;

 private:
  S3Storage(std::unique_ptr<Client> client, std::string directory)
      : client_(std::move(client)), directory_(std::move(directory)) {}
  std::string key_of(const PackId& id) const;

  const std::unique_ptr<Client> client_;
  const std::string directory_;  // ends with a slash
};

}  // namespace ramet::chunk::s3
