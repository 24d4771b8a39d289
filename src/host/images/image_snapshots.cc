// Records of snapshots: their catalogue under the lock of all names, so that a collection sees all of them or asks again.
#include "host/images/image_store.h"

namespace ramet::host {

Status ImageStore::Snapshots::add(std::string_view id, const chunk::Batch&, const commit::SnapshotRecord& record) {
  const std::lock_guard lock(store_.names_mutex_);
  return store_.snapshots_.add(id, record);
}

Result<commit::SnapshotRecord> ImageStore::Snapshots::get(std::string_view id) const {
  const std::lock_guard lock(store_.names_mutex_);
  return store_.snapshots_.get(id);
}

Status ImageStore::Snapshots::replace_details(std::string_view id, std::string details) {
  const std::lock_guard lock(store_.names_mutex_);
  return store_.snapshots_.replace_details(id, std::move(details));
}

Status ImageStore::Snapshots::remove(std::string_view id) {
  const std::lock_guard lock(store_.names_mutex_);
  TRY(store_.snapshots_.remove(id));
  for (InUse& one : store_.in_use_)
    if (one.id == ImageId{ImageSpace::kSnapshot, std::string(id)}) one.named = false;
  store_.wants_collection_ = true;
  return {};
}

Result<std::vector<std::string>> ImageStore::Snapshots::ids() const {
  const std::lock_guard lock(store_.names_mutex_);
  return store_.snapshots_.ids();
}

}  // namespace ramet::host
