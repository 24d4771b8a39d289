// commit/file_tree.h - a tree of files in memory, as an archive describes it, before it becomes a file system. No path of it
// ever reaches the host's file system: contents lie in one spool file, and what would leave the tree is an error here. Refused:
// `..`, absolute paths, paths through a symbolic link or a file, hard links to what is not there, names and numbers over the
// limits. Not here: archives, ext4, device nodes (the tree has no place for them). Thread: one. A resource.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "commit/image_limits.h"

namespace ramet::commit {

struct Attributes {
  uint32_t mode = 0755;  // the lower twelve bits
  uint32_t uid = 0, gid = 0;
  int64_t mtime_s = 0;
  uint32_t mtime_ns = 0;
  std::vector<std::pair<std::string, std::string>> xattrs;
};

// Where the bytes of a file lie in the spool.
struct SpoolRange {
  uint64_t offset = 0, bytes = 0;
};

class FileTree {
 public:
  using NodeId = uint32_t;
  static constexpr NodeId kRoot = 0;
  static constexpr size_t kMaxName = 255, kMaxTarget = 4095, kMaxDepth = 256;

  enum class Kind { kDirectory, kFile, kSymlink };
  struct Node {
    Kind kind = Kind::kDirectory;
    Attributes attributes;
    std::map<std::string, NodeId, std::less<>> children;  // of a directory
    SpoolRange content;                                   // of a file
    std::string target;                                   // of a symbolic link
    uint32_t layer = 0;                                   // that named it last
  };

  explicit FileTree(const ImageLimits& limits) : limits_(limits), nodes_(1) {}

  // What is named twice is there once, as named last; a directory keeps its children then. Directories that nobody named are
  // made. Hard links name the same node.   Errors: kInvalid, with the path and the reason.
  Status add_directory(std::string_view path, Attributes attributes);
  Status add_file(std::string_view path, Attributes attributes, SpoolRange content);
  Status add_symlink(std::string_view path, Attributes attributes, std::string target);
  Status add_hard_link(std::string_view path, std::string_view existing);

  // Layers, as container images have them: removals take away only what lower layers brought.
  void begin_layer() { layer_++; }
  Status remove(std::string_view path);
  Status remove_children(std::string_view path);

  const Node& node(NodeId id) const { return nodes_[id]; }
  // nullopt: no such path, or none that this tree could have.
  std::optional<NodeId> find(std::string_view path) const;

 private:
  using Parts = std::vector<std::string_view>;
  Result<Parts> split(std::string_view path) const;
  Result<NodeId> directory_for(std::string_view path, const Parts& parts);
  Result<NodeId> add(std::string_view path, Node node);
  NodeId new_node(Node node);
  Status charge_entry(std::string_view path, size_t metadata_bytes);
  Status charge(std::string_view path, size_t metadata_bytes);
  Status check_room(std::string_view path, NodeId directory) const;
  bool prune(NodeId id);
  void prune_children(NodeId id);

  const ImageLimits limits_;
  std::vector<Node> nodes_;
  uint32_t layer_ = 0;
  uint64_t metadata_bytes_ = 0;
  uint64_t named_ = 0;  // entries of directories, ever made
};

// For messages: control characters made visible, cut to a readable length.
inline constexpr size_t kMostShown = 200;
std::string shown(std::string_view foreign, size_t most_bytes = kMostShown);

}  // namespace ramet::commit
