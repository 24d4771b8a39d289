// chunk/counted_storage.h - counts what is read from a place for packs: around a local directory, around a bucket.
// Thread: as PackStorage; counts() at any time.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "chunk/pack_storage.h"

namespace ramet::chunk {

class CountedStorage final : public PackStorage {
 public:
  struct Counts {
    uint64_t reads = 0, read_bytes = 0;      // that succeeded
    uint64_t writes = 0, written_bytes = 0;  // that succeeded
  };
  explicit CountedStorage(std::unique_ptr<PackStorage> storage) : storage_(std::move(storage)) {}
  Counts counts() const { return {reads_, read_bytes_, writes_, written_bytes_}; }

  Status write(const PackId& id, std::span<const std::byte> bytes) override {
    TRY(storage_->write(id, bytes));
    writes_++;
    written_bytes_ += bytes.size();
    return {};
  }
  Status read(const PackId& id, uint64_t offset, std::span<std::byte> out) const override {
    TRY(storage_->read(id, offset, out));
    reads_++;
    read_bytes_ += out.size();
    return {};
  }
  Result<uint64_t> size_bytes(const PackId& id) const override { return storage_->size_bytes(id); }
  Status remove(const PackId& id) override { return storage_->remove(id); }
  Result<std::vector<PackId>> list() const override { return storage_->list(); }
  Status refetch(const PackId& id) override { return storage_->refetch(id); }

 private:
  const std::unique_ptr<PackStorage> storage_;
  mutable std::atomic<uint64_t> reads_{0}, read_bytes_{0};
  std::atomic<uint64_t> writes_{0}, written_bytes_{0};
};

}  // namespace ramet::chunk
