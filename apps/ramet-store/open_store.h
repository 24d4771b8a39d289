// ramet-store/open_store.h - what all commands begin with, and how they print. Thread: one.
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "chunk/store.h"
#include "commands.h"
#include "commit/catalogue.h"
#include "commit/snapshot_catalogue.h"

namespace ramet::store_tool {

template <class Store>
struct Opened {
  std::unique_ptr<Store> store;
  commit::Catalogue catalogue;
  // That one and those that belong to a daemon (disks of its templates): what all need of the store.
  std::vector<commit::Catalogue> everybody;
  std::optional<commit::SnapshotCatalogue> snapshots;  // a daemon's, too; absent: there never were any

  const commit::SnapshotCatalogue* snapshots_if_any() const { return snapshots ? &*snapshots : nullptr; }
};
using OpenStore = Opened<chunk::Store>;
using ReadStore = Opened<const chunk::Store>;

// Errors: kNotFound (no store there).
Status must_exist(const Place& place);
enum class Missing { kIsAnError, kIsMade };
// To change it.   Errors: kConflict (somebody has it open, a daemon for one), those of Store.
Result<OpenStore> open_store(const Place& place, Missing missing = Missing::kIsAnError);
// To look at it, whoever else has it open.
Result<ReadStore> open_to_read(const Place& place);

// What `read` answers. A daemon may remove or move meanwhile what was found a moment ago: then it is called again.
template <class Read>
auto beside_others(const Read& read) {
  constexpr int kAttempts = 5;
  auto answer = read();
  for (int i = 1; i < kAttempts && !answer && answer.error().kind() == ErrorKind::kNotFound; i++) answer = read();
  return answer;
}

// One line on standard output.
void print(const boost::json::value& value);

}  // namespace ramet::store_tool
