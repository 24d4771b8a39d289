// host/images/testing/domain.h - a dedup domain with all its real parts, and a client of its socket; and what its store was
// made to do. Thread: one test.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/socket.h"
#include "chunk/testing/temporary_directory.h"
#include "host/images/images.h"
#include "host/images/testing/counted_statements.h"
#include "image/chunked_source.h"

namespace ramet::host::testing {

// What answering took, of one domain's store.
struct StoreWork {
  uint64_t statements = 0, read_bytes = 0;
  friend bool operator==(const StoreWork&, const StoreWork&) = default;
  friend StoreWork operator-(const StoreWork& a, const StoreWork& b) {
    return {a.statements - b.statements, a.read_bytes - b.read_bytes};
  }
};

class Domain {
 public:
  explicit Domain(Domain* common = nullptr, uint32_t after_misses = 0, uint64_t cache_bytes = 256u << 20) {
    Images::Options options;
    options.store.directory = directory_.path;
    options.store.cache_bytes = cache_bytes;
    options.fill.after_misses = after_misses;
    options.socket = directory_.path + "/chunk.sock";
    options.common = common ? common->images_.get() : nullptr;
    images_ = Images::open(std::move(options)).value();
  }

  Images& images() { return *images_; }
  ImageStore& store() { return images_->store(); }
  const std::string& directory() const { return directory_.path; }
  uint64_t stored_bytes() { return store().chunks().totals()->pack_bytes; }
  StoreWork work() {
    return {CountedStatements::count(std::filesystem::canonical(directory_.path + "/index.db")),
            store().pack_reads().local_bytes};
  }

  // A client that names the image, as NBD's does.
  std::unique_ptr<image::ChunkedSource> client(const std::string& name, uint64_t blocks) {
    return std::make_unique<image::ChunkedSource>(blocks, connect_unix(directory_.path + "/chunk.sock", SOCK_SEQPACKET).value(),
                                                  name);
  }
  // An image as somebody hostile would make it: a manifest with a page of its own, whose chunks have these names.
  void add_forged(const std::string& name, uint64_t blocks, const std::vector<Digest>& chunks) {
    chunk::Batch batch = store().chunks().begin();
    image::Manifest manifest = image::Manifest::empty(image::ImageKind::kDisk, blocks).value();
    for (size_t n = 0; n < chunks.size(); n++) EXPECT_TRUE(manifest.set(n, chunks[n]));
    EXPECT_TRUE(commit::seal_into(batch, manifest));
    EXPECT_TRUE(batch.commit());
    EXPECT_TRUE(store().add({ImageSpace::kUser, name}, batch, manifest.root()));
  }

 private:
  chunk::testing::TemporaryDirectory directory_;
  std::unique_ptr<Images> images_;
};

// The bytes of one block, or why there are none.
inline Result<std::vector<std::byte>> read_block(const image::ChunkedSource& source, uint64_t block) {
  std::vector<std::byte> out(image::kBlockBytes);
  const iovec to{out.data(), out.size()};
  TRY(source.read({block, 1}, {&to, 1}, image::Wait::kAllowed));
  return out;
}

}  // namespace ramet::host::testing
