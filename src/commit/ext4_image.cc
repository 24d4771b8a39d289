#include "commit/ext4_image.h"

#include <unistd.h>

#include "base/file.h"
#include "chunk/digest.h"
#include "commit/ext4_filler.h"
#include "commit/program.h"

namespace ramet::commit {
namespace {

constexpr uint64_t kBlockBytes = 4096, kMiB = 1 << 20, kGiB = 1 << 30;
constexpr uint64_t kInodeBytes = 256, kJournalBytes = 16 * kMiB;
constexpr uint64_t kBytesPerInode = 16384;  // as mke2fs has it
constexpr uint64_t kMaxBytes = 16ull << 40;

struct Needs {
  uint64_t files = 0, bytes = 0;
};

Needs needs_of(const FileTree& tree) {
  Needs needs;
  std::vector<FileTree::NodeId> left{FileTree::kRoot};
  while (!left.empty()) {
    const FileTree::Node& node = tree.node(left.back());
    left.pop_back();
    needs.files++;
    needs.bytes += (node.content.bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes + kInodeBytes;
    if (node.kind != FileTree::Kind::kFile) needs.bytes += kBlockBytes;
    if (!node.attributes.xattrs.empty()) needs.bytes += kBlockBytes;
    for (const auto& [name, child] : node.children) {
      needs.bytes += name.size() + 16;
      left.push_back(child);
    }
  }
  return needs;
}

uint64_t fitting_bytes(const Needs& needs) {
  const uint64_t wanted = std::max(kGiB, 2 * needs.bytes + 2 * kJournalBytes);
  return (wanted + kMiB - 1) / kMiB * kMiB;
}

std::string uuid_of(const std::string& name) {
  const std::string seed = "ext4 " + name;
  const std::string hex = chunk::digest_of(as_bytes(seed)).to_hex();
  return hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-4" + hex.substr(13, 3) + "-8" + hex.substr(17, 3) + "-" +
         hex.substr(20, 12);
}

Status make_empty(int image, const Needs& needs, uint64_t bytes, const Ext4Options& options) {
  const std::string uuid = uuid_of(options.name);
  const uint64_t inodes = std::max(bytes / kBytesPerInode, needs.files + needs.files / 4 + 1024);
  return run_program({.argv = {"mke2fs",
                               "-q",
                               "-F",
                               "-t",
                               "ext4",
                               "-b",
                               std::to_string(kBlockBytes),
                               "-m",
                               "1",
                               "-J",
                               "size=16",
                               "-N",
                               std::to_string(inodes),
                               "-U",
                               uuid,
                               "-L",
                               options.name.substr(0, 16),
                               "-E",
                               "nodiscard,lazy_itable_init=0,lazy_journal_init=0,assume_storage_prezeroed=1,root_owner=0:0,"
                               "hash_seed=" +
                                   uuid,
                               path_of(image)},
                      .files = {image},
                      .environment = {"E2FSPROGS_FAKE_TIME=" + std::to_string(kEpochSeconds)},
                      .max_file_bytes = bytes,
                      .time = options.program_time});
}

}  // namespace

Status write_ext4(const FileTree& tree, const Spool& spool, int image, const Ext4Options& options) {
  const Needs needs = needs_of(tree);
  const uint64_t bytes = options.bytes ? options.bytes / kBlockBytes * kBlockBytes : fitting_bytes(needs);
  if (bytes < 4 * kJournalBytes || bytes > kMaxBytes)
    return fail(ErrorKind::kInvalid, "a file system of " + std::to_string(bytes) + " bytes; the limits are " +
                                         std::to_string(4 * kJournalBytes) + " and " + std::to_string(kMaxBytes));
  if (needs.bytes > bytes)
    return fail(ErrorKind::kInvalid,
                "the files need " + std::to_string(needs.bytes) + " bytes, the file system has " + std::to_string(bytes));
  if (::ftruncate(image, static_cast<off_t>(bytes)) < 0) return fail_errno("make room for a file system");
  TRY(make_empty(image, needs, bytes, options));
  return fill_ext4(tree, spool, path_of(image));
}

}  // namespace ramet::commit
