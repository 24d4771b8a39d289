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

}  // namespace

Status must_exist(const Place& place) {
  if (std::error_code error; std::filesystem::is_directory(place.packs(), error)) return {};
  return tl::unexpected<Error>(Error(ErrorKind::kNotFound, "there is no store in " + place.directory)
                                   .with_hint("`ramet-store --store DIR import FILE NAME` makes one"));
}

Result<OpenStore> open_store(const Place& place, Missing missing) {
  if (missing == Missing::kIsAnError) TRY(must_exist(place));
  TRY_ASSIGN(std::unique_ptr<chunk::DirectoryStorage> packs, chunk::DirectoryStorage::open(place.packs()));
  TRY_ASSIGN(std::unique_ptr<chunk::Store> store,
             chunk::Store::open(std::move(packs), place.index(), {.compress_threads = threads_beside_this_one()}));
  TRY_ASSIGN(commit::Catalogue catalogue, commit::Catalogue::open(place.images()));
  std::vector<commit::Catalogue> everybody{catalogue};
  if (std::error_code error; std::filesystem::is_directory(place.templates(), error)) {
    TRY_ASSIGN(commit::Catalogue templates, commit::Catalogue::open(place.templates()));
    everybody.push_back(std::move(templates));
  }
  return OpenStore{std::move(store), std::move(catalogue), std::move(everybody)};
}

void print(const boost::json::value& value) { std::printf("%s\n", boost::json::serialize(value).c_str()); }

}  // namespace ramet::store_tool
