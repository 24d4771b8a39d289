// domains/tenant.h - one dedup domain as the daemon has it: store, names, caches, chunk socket; and small contents to put
// there. Thread: one. Owner: World, for one row.
#pragma once

#include "image/chunked_source.h"  // before the manifest, whose kZeros is the name of an enumerator here

#include <fcntl.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/temporary_directory.h"
#include "host/images/images.h"
#include "must.h"

namespace ramet::bench {

using chunk::testing::Bytes;
using image::kBlockBytes;

// Bytes of one chunk, unlike all others'.
struct Content {
  static constexpr size_t kBlocks = 8;
  explicit Content(uint64_t seed)
      : bytes(chunk::testing::noise(kBlocks * kBlockBytes, seed)), digest(chunk::digest_of(bytes)) {}
  Bytes bytes;
  Digest digest;
};

// A reader of a disk, over the chunk socket.
class Reader {
 public:
  Reader(host::Images& images, const std::shared_ptr<host::OpenImage>& image)
      : source_(image->blocks(), must(images.server().attach(image))) {}
  Status read(uint64_t block) {
    const iovec to{out_.data(), out_.size()};
    TRY(source_.read({block, 1}, {&to, 1}, image::Wait::kAllowed));
    return {};
  }

 private:
  Bytes out_ = Bytes(kBlockBytes);
  image::ChunkedSource source_;
};

class Tenant {
 public:
  explicit Tenant(Tenant* common = nullptr) {
    host::Images::Options options;
    options.store.directory = directory_.path;
    options.store.cache_bytes = 256u << 20;
    options.fill.after_misses = 0;  // chunks come into the cache by read() alone
    options.common = common ? common->images_.get() : nullptr;
    images_ = must(host::Images::open(std::move(options)));
  }
  host::Images& images() { return *images_; }
  host::ImageStore& store() { return images_->store(); }

  // As an image.
  std::shared_ptr<host::OpenImage> keep(const std::string& name, const Content& content) {
    chunk::Batch batch = store().chunks().begin();
    must(batch.put(content.bytes));
    must(batch.commit());
    return add_disk(name, 0, content.digest);
  }

  // A disk of `zeros` chunks of zeros and the one that has this digest, whoever has it.
  std::shared_ptr<host::OpenImage> add_disk(const std::string& name, uint64_t zeros, const Digest& digest) {
    chunk::Batch batch = store().chunks().begin();
    image::Manifest manifest =
        must(image::Manifest::empty(image::ImageKind::kDisk, zeros * image::kChunkBlocks + Content::kBlocks));
    must(manifest.set(zeros, digest));
    must(commit::seal_into(batch, manifest));
    must(batch.commit());
    return must(store().add({host::ImageSpace::kUser, name}, batch, manifest.root()));
  }

  // Somebody reads all of it: its frame is decoded, and afterwards its chunk in the cache, too.
  void read(const std::shared_ptr<host::OpenImage>& image, const Content& content) {
    Reader reader(*images_, image);
    must(reader.read(0));
    must(store().cache().fill(content.digest, content.bytes));
    must(reader.read(1));
  }

  void drop_from_page_cache() const {
    for (const std::filesystem::directory_entry& pack : std::filesystem::directory_iterator(directory_.path + "/packs")) {
      const UniqueFd file = must(open_file(pack.path(), O_RDONLY));
      if (::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED) != 0) die("a pack stays in the page cache");
    }
  }

 private:
  const chunk::testing::TemporaryDirectory directory_;
  std::unique_ptr<host::Images> images_;
};

}  // namespace ramet::bench
