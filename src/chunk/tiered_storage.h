// chunk/tiered_storage.h - packs in two places: a local one in front, a remote one behind.
//
//   write     lands locally, and waits there until upload() brings it to the remote
//   read      from the local pack; where there is none, just the bytes asked for from the remote
//   remove    from both
//   refetch   a local pack that is damaged, or missing, is replaced by the remote one, which is checked first; without room for
//             it here it is taken away, and read there
//
// Which packs wait is not written down: they are those that the remote does not list. So nothing is asked of the remote before
// it is needed, and a host comes up without it. Not here: when to upload, which local packs to drop (who calls decides).
// Thread: as PackStorage. A resource.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "chunk/counted_storage.h"
#include "chunk/pack_storage.h"

namespace ramet::chunk {

class TieredStorage final : public PackStorage {
 public:
  TieredStorage(std::unique_ptr<PackStorage> local, std::unique_ptr<PackStorage> remote)
      : local_(std::move(local)), remote_(std::move(remote)) {}

  Status write(const PackId& id, std::span<const std::byte> bytes) override;
  Status read(const PackId& id, uint64_t offset, std::span<std::byte> out) const override;
  Result<uint64_t> size_bytes(const PackId& id) const override;
  // Errors: kUnavailable: it is away locally, but still in the remote; a later call may succeed.
  Status remove(const PackId& id) override;
  Result<std::vector<PackId>> list() const override;
  // Errors: kNotFound (not in the remote), kCorrupt (there neither), kIo, kUnavailable.
  Status refetch(const PackId& id) override;

  // Afterwards every pack written before the call is durable in the remote.   Errors: those of both places; what was uploaded
  // so far is.
  Status upload();
  // Packs that are durable here only.
  Result<std::vector<PackId>> waiting() const;
  // Packs that have a copy here.
  Result<std::vector<PackId>> local() const { return local_.list(); }
  bool is_local(const PackId& id) const { return local_.size_bytes(id).has_value(); }
  // Frees the local space of a pack. It is read from the remote then.   Errors: kConflict (it is not in the remote).
  Status drop_local(const PackId& id);

  CountedStorage::Counts local_counts() const { return local_.counts(); }
  CountedStorage::Counts remote_counts() const { return remote_.counts(); }

 private:
  Status upload_one(const PackId& id);
  bool is_whole_locally(const PackId& id) const;

  CountedStorage local_, remote_;
  std::mutex uploading_;   // one upload() at a time
  std::mutex refetching_;  // one refetch() at a time; held over it: who waits finds the pack mended
  std::mutex mutex_;
  std::set<PackId> uploaded_now_;  // whose upload runs; removed from here: its pack was removed meanwhile
};

}  // namespace ramet::chunk
