// A tar as it comes, under small limits: whatever is taken lies below the root, within the limits and within the spool.
#include <sys/mman.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "commit/archive.h"

namespace {

using namespace ramet;
using namespace ramet::commit;

const ImageLimits kLimits{.max_unpacked_bytes = 1 << 20, .max_metadata_bytes = 1 << 18, .max_files = 2000};

void check(bool good) {
  if (!good) abort();
}

void check_tree(const FileTree& tree) {
  std::vector<FileTree::NodeId> left{FileTree::kRoot};
  uint64_t files = 0;
  while (!left.empty()) {
    const FileTree::Node& node = tree.node(left.back());
    left.pop_back();
    check(++files <= kLimits.max_files + 1);
    check(node.content.offset + node.content.bytes <= 2 * kLimits.max_unpacked_bytes + kLimits.max_files * 4096);
    check(node.kind == FileTree::Kind::kDirectory || node.children.empty());
    check(node.target.size() <= FileTree::kMaxTarget);
    for (const auto& [name, child] : node.children) {
      check(!name.empty() && name != "." && name != ".." && name.size() <= FileTree::kMaxName);
      check(name.find('/') == name.npos && name.find('\0') == name.npos);
      left.push_back(child);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const std::string work = std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data + 1, size - 1));
  Result<UniqueFd> archive = make_memfd("archive", 0);
  Result<OutputFile> contents = OutputFile::temporary(work);
  if (!archive || !contents || !pwrite_all(archive->get(), bytes, 0)) return 0;
  FileTree tree(kLimits);
  Spool spool(std::move(*contents), kLimits);
  tree.begin_layer();
  static_cast<void>(tree.add_directory("a/gone", {}));
  static_cast<void>(tree.add_symlink("b/old", {}, "/etc"));
  tree.begin_layer();
  static_cast<void>(
      read_tar({archive->get(), 0, bytes.size()}, data[0] & 1 ? Whiteouts::kRemove : Whiteouts::kOrdinary, tree, spool));
  check_tree(tree);
  return 0;
}
