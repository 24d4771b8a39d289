#include "open_store.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "chunk/directory_storage.h"

namespace ramet::store_tool {
namespace {

// To compress with. More than a few would wait for the one that hashes.
unsigned threads_beside_this_one() { return std::clamp(std::thread::hardware_concurrency(), 1u, 5u) - 1; }

constexpr const char* kDaemonHint =
    "while rametd runs, `ramet image import` and `rm` do this, and it collects garbage by itself";

// What cannot be looked at is not taken for missing: a collection would take away all that it needs.
Result<bool> is_there(const std::string& directory) {
  std::error_code error;
  const bool there = std::filesystem::exists(directory, error);
  if (error) return fail(ErrorKind::kIo, "look for " + directory + ": " + error.message());
  return there;
}

template <class Store>
Result<Opened<Store>> with_catalogues(std::unique_ptr<Store> store, const Place& place) {
  TRY_ASSIGN(commit::Catalogue images, commit::Catalogue::open(place.images()));
  std::vector<commit::Catalogue> everybody{images};
  TRY_ASSIGN(const bool has_templates, is_there(place.templates()));
  if (has_templates) {
    TRY_ASSIGN(commit::Catalogue templates, commit::Catalogue::open(place.templates()));
    everybody.push_back(std::move(templates));
  }
  Opened<Store> opened{std::move(store), std::move(images), std::move(everybody), std::nullopt};
  TRY_ASSIGN(const bool has_snapshots, is_there(place.snapshots()));
  if (has_snapshots) {
    TRY_ASSIGN(opened.snapshots, commit::SnapshotCatalogue::open(place.snapshots()));
  }
  return opened;
}

}  // namespace

Status must_exist(const Place& place) {
  if (std::error_code error; std::filesystem::is_directory(place.packs(), error)) return {};
  return tl::unexpected<Error>(Error(ErrorKind::kNotFound, "there is no store in " + place.directory)
                                   .with_hint("`ramet-store --store DIR import FILE NAME` makes one"));
}

Result<OpenStore> open_store(const Place& place, Missing missing) {
  if (missing == Missing::kIsAnError) TRY(must_exist(place));
  Result<std::unique_ptr<chunk::DirectoryStorage>> packs = chunk::DirectoryStorage::open(place.packs());
  if (!packs && packs.error().kind() == ErrorKind::kConflict)
    return tl::unexpected<Error>(Error(packs.error()).with_hint(kDaemonHint));
  if (!packs) return tl::unexpected<Error>(packs.error());
  TRY_ASSIGN(std::unique_ptr<chunk::Store> store,
             chunk::Store::open(*std::move(packs), place.index(), {.compress_threads = threads_beside_this_one()}));
  return with_catalogues(std::move(store), place);
}

Result<ReadStore> open_to_read(const Place& place) {
  TRY(must_exist(place));
  if (std::error_code error; !std::filesystem::exists(place.index(), error))
    return tl::unexpected<Error>(Error(ErrorKind::kCorrupt, "there is no index.db in " + place.directory)
                                     .with_hint("`ramet-store rebuild-index` makes it from the packs"));
  TRY_ASSIGN(std::unique_ptr<chunk::DirectoryStorage> packs, chunk::DirectoryStorage::open_to_read(place.packs()));
  TRY_ASSIGN(std::unique_ptr<const chunk::Store> store, chunk::Store::open_to_read(std::move(packs), place.index()));
  return with_catalogues(std::move(store), place);
}

void print(const boost::json::value& value) { std::printf("%s\n", boost::json::serialize(value).c_str()); }

}  // namespace ramet::store_tool
