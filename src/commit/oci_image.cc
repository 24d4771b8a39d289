#include "commit/oci_image.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "chunk/sha256.h"
#include "commit/oci_json.h"

namespace ramet::commit {
namespace {

constexpr size_t kHashBytes = 1u << 20;
constexpr int kMaxNestedIndexes = 4;

struct Blob {
  UniqueFd owned;  // of a directory's blob
  FileRange range;
};

class Blobs {
 public:
  virtual ~Blobs() = default;
  virtual Result<Blob> open(const std::string& name) const = 0;
};

// A path below the directory, no link on the way.
class DirectoryBlobs final : public Blobs {
 public:
  explicit DirectoryBlobs(UniqueFd directory) : directory_(std::move(directory)) {}
  Result<Blob> open(const std::string& name) const override {
    open_how how{};
    how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
    UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, directory_.get(), name.c_str(), &how, sizeof how)));
    if (!fd) return fail_errno("OCI image: open " + name);
    struct stat st {};
    if (::fstat(fd.get(), &st) < 0) return fail_errno("OCI image: " + name);
    if (!S_ISREG(st.st_mode)) return fail(ErrorKind::kInvalid, "OCI image: " + name + " is no file");
    const FileRange range{fd.get(), 0, static_cast<uint64_t>(st.st_size)};
    return Blob{std::move(fd), range};
  }

 private:
  UniqueFd directory_;
};

class ArchiveBlobs final : public Blobs {
 public:
  ArchiveBlobs(FileTree tree, Spool spool) : tree_(std::move(tree)), spool_(std::move(spool)) {}
  Result<Blob> open(const std::string& name) const override {
    const std::optional<FileTree::NodeId> id = tree_.find(name);
    if (!id) return fail(ErrorKind::kNotFound, "OCI image: there is no " + name);
    const FileTree::Node& node = tree_.node(*id);
    if (node.kind != FileTree::Kind::kFile) return fail(ErrorKind::kInvalid, "OCI image: " + name + " is no file");
    return Blob{{}, {spool_.fd(), node.content.offset, node.content.bytes}};
  }

 private:
  FileTree tree_;
  Spool spool_;
};

Result<std::unique_ptr<Blobs>> open_layout(const OciRequest& request) {
  TRY_ASSIGN(UniqueFd layout, open_file(request.path, O_RDONLY | O_NONBLOCK));
  struct stat st {};
  if (::fstat(layout.get(), &st) < 0) return fail_errno(request.path);
  if (S_ISDIR(st.st_mode)) return std::make_unique<DirectoryBlobs>(std::move(layout));
  if (!S_ISREG(st.st_mode)) return fail(ErrorKind::kInvalid, request.path + " is neither a directory nor a file");
  TRY_ASSIGN(OutputFile file, OutputFile::temporary(request.work_directory));
  FileTree tree(request.limits);
  Spool spool(std::move(file), request.limits);
  TRY(read_tar({layout.get(), 0, static_cast<uint64_t>(st.st_size)}, Whiteouts::kOrdinary, tree, spool));
  return std::make_unique<ArchiveBlobs>(std::move(tree), std::move(spool));
}

Result<std::string> read_document(const FileRange& range) {
  if (range.bytes > kMaxOciJsonBytes)
    return fail(ErrorKind::kInvalid, "OCI image: a document of " + std::to_string(range.bytes) + " bytes, the limit is " +
                                         std::to_string(kMaxOciJsonBytes));
  std::string out(range.bytes, '\0');
  TRY(pread_exact(range.fd, std::as_writable_bytes(std::span(out)), range.offset));
  return out;
}

Result<Digest> digest_of(const FileRange& range) {
  chunk::Sha256 hash;
  std::vector<std::byte> buffer(kHashBytes);
  for (uint64_t at = 0; at < range.bytes; at += buffer.size()) {
    const std::span<std::byte> part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), range.bytes - at));
    TRY(pread_exact(range.fd, part, range.offset + at));
    hash.add(part);
  }
  return hash.end();
}

Result<Blob> checked_blob(const Blobs& blobs, const OciDescriptor& descriptor) {
  const std::string hex = descriptor.digest.to_hex();
  TRY_ASSIGN(Blob blob, blobs.open("blobs/sha256/" + hex));
  if (blob.range.bytes != descriptor.bytes)
    return fail(ErrorKind::kCorrupt, "OCI image: blob " + hex + " has " + std::to_string(blob.range.bytes) +
                                         " bytes instead of " + std::to_string(descriptor.bytes));
  TRY_ASSIGN(const Digest digest, digest_of(blob.range));
  if (digest != descriptor.digest) return fail(ErrorKind::kCorrupt, "OCI image: blob " + hex + " has another digest");
  return blob;
}

Result<std::string> checked_document(const Blobs& blobs, const OciDescriptor& descriptor) {
  TRY_ASSIGN(const Blob blob, checked_blob(blobs, descriptor));
  return read_document(blob.range);
}

// The manifest's text, through as many indexes as lead to it.
Result<std::string> find_manifest(const Blobs& blobs, const std::string& tag) {
  TRY_ASSIGN(const Blob index, blobs.open("index.json"));
  TRY_ASSIGN(std::string document, read_document(index.range));
  for (int depth = 0; depth < kMaxNestedIndexes; depth++) {
    TRY_ASSIGN(const std::vector<OciDescriptor> images, decode_oci_index(document));
    TRY_ASSIGN(const OciDescriptor image, choose_oci_image(images, depth == 0 ? tag : ""));
    TRY_ASSIGN(document, checked_document(blobs, image));
    if (image.kind == OciDescriptor::Kind::kManifest) return document;
  }
  return fail(ErrorKind::kInvalid, "OCI image: more than " + std::to_string(kMaxNestedIndexes) + " indexes in each other");
}

}  // namespace

Status read_oci(const OciRequest& request, FileTree& tree, Spool& spool, const OnBytes& on_bytes) {
  TRY_ASSIGN(const std::unique_ptr<Blobs> blobs, open_layout(request));
  TRY_ASSIGN(const std::string manifest, find_manifest(*blobs, request.tag));
  TRY_ASSIGN(const std::vector<OciDescriptor> layers, decode_oci_manifest(manifest));
  uint64_t done = 0;
  for (const OciDescriptor& layer : layers) {
    TRY_ASSIGN(const Blob blob, checked_blob(*blobs, layer));
    tree.begin_layer();
    TRY(read_tar(blob.range, Whiteouts::kRemove, tree, spool, [&](uint64_t read) {
      if (on_bytes) on_bytes(done + read);
    }));
    done += layer.bytes;
  }
  return {};
}

}  // namespace ramet::commit
