#include "commit/oci_export.h"

#include <algorithm>

#include "base/file.h"
#include "base/output_file.h"
#include "chunk/sha256.h"
#include "commit/oci_documents.h"
#include "commit/tar_export.h"
#include "commit/tar_writer.h"

namespace ramet::commit {
namespace {

constexpr size_t kCopyBytes = 1u << 20;

// What a file has is hashed while more of it is written.
class GrowingDigest {
 public:
  explicit GrowingDigest(int file) : file_(file) {}
  Status reach(uint64_t bytes) {
    while (bytes_ < bytes) {
      const std::span<std::byte> part = std::span(buffer_).first(std::min<uint64_t>(buffer_.size(), bytes - bytes_));
      TRY(pread_exact(file_, part, bytes_));
      hash_.add(part);
      bytes_ += part.size();
    }
    return {};
  }
  OciLayer end() { return {hash_.end(), bytes_}; }

 private:
  const int file_;
  uint64_t bytes_ = 0;
  chunk::Sha256 hash_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kCopyBytes);
};

Result<OciLayer> make_layer(int file, image::Manifest& manifest, const chunk::Store& store, const OnProgress& progress,
                            const ImageLimits& limits) {
  GrowingDigest digest(file);
  Status hashed;
  const auto follow = [&](const Progress& p) {
    if (hashed) hashed = digest.reach(p.done_bytes);
    if (progress) progress(p);
  };
  TRY(export_tar(TarUse::kLayer, manifest, store, file, follow, limits));
  TRY(hashed);
  TRY_ASSIGN(const uint64_t bytes, file_size(file));
  TRY(digest.reach(bytes));
  return digest.end();
}

class LayoutWriter {
 public:
  LayoutWriter(TarWriter& tar, const OnProgress& progress, const ImageLimits& limits)
      : tar_(tar), progress_(progress), limits_(limits) {}

  Status add_directory(const std::string& path) {
    TRY(tar_.begin({.path = path, .mode = S_IFDIR | 0755}));
    return tar_.end();
  }
  Status add(const OciDocument& document) {
    TRY(begin_file(document.path, document.text.size()));
    TRY(tar_.write(0, as_bytes(document.text)));
    return tar_.end();
  }
  Status add(const OciLayer& layer, int file) {
    TRY(begin_file(std::string(kOciBlobs) + layer.digest.to_hex(), layer.bytes));
    std::vector<std::byte> buffer(kCopyBytes);
    for (uint64_t at = 0; at < layer.bytes; at += buffer.size()) {
      if (at % kAdmitBytes == 0) TRY(limits_.admit(std::min(kAdmitBytes, layer.bytes - at)));
      const std::span<std::byte> part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), layer.bytes - at));
      TRY(pread_exact(file, part, at));
      TRY(tar_.write(at, part));
      if (progress_) progress_({at + part.size(), layer.bytes, "write"});
    }
    return tar_.end();
  }

 private:
  Status begin_file(const std::string& path, uint64_t bytes) {
    return tar_.begin({.path = path, .mode = S_IFREG | 0644, .bytes = bytes, .data = {{0, bytes}}});
  }

  TarWriter& tar_;
  const OnProgress& progress_;
  const ImageLimits& limits_;
};

}  // namespace

Status export_oci(const OciExport& to, image::Manifest& manifest, const chunk::Store& store, const OnProgress& progress,
                  const ImageLimits& limits) {
  TRY_ASSIGN(const OutputFile file, OutputFile::temporary(to.work_directory));
  TRY_ASSIGN(const OciLayer layer, make_layer(file.fd(), manifest, store, progress, limits));
  const OciDocuments documents = oci_documents(layer, to.tag);
  TRY_ASSIGN(const std::unique_ptr<TarWriter> tar,
             TarWriter::open([&](std::span<const std::byte> bytes) { return write_all(to.file, bytes); }));
  LayoutWriter layout(*tar, progress, limits);
  // An archive is known as one by what comes first (guess_format.h).
  TRY(layout.add(documents.layout));
  TRY(layout.add(documents.index));
  TRY(layout.add_directory("blobs/"));
  TRY(layout.add_directory(std::string(kOciBlobs)));
  TRY(layout.add(documents.config));
  TRY(layout.add(documents.manifest));
  TRY(layout.add(layer, file.fd()));
  return tar->close();
}

}  // namespace ramet::commit
