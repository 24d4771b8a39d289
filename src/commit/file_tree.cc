#include "commit/file_tree.h"

#include <algorithm>
#include <cstdio>

namespace ramet::commit {
namespace {

tl::unexpected<Error> refuse(std::string_view path, const std::string& reason) {
  return fail(ErrorKind::kInvalid, "'" + shown(path) + "' " + reason);
}

size_t metadata_of(const FileTree::Node& node) {
  size_t bytes = node.target.size();
  for (const auto& [name, value] : node.attributes.xattrs) bytes += name.size() + value.size();
  return bytes;
}

}  // namespace

std::string shown(std::string_view foreign, size_t most_bytes) {
  std::string out;
  for (const char c : foreign.substr(0, most_bytes)) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) {
      out += c;
      continue;
    }
    char escaped[5];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += escaped;
  }
  return foreign.size() > most_bytes ? out + "..." : out;
}

Result<FileTree::Parts> FileTree::split(std::string_view path) const {
  if (path.empty()) return refuse(path, "is an empty path");
  if (path.find('\0') != path.npos) return refuse(path, "has a zero byte");
  if (path.starts_with('/')) return refuse(path, "is an absolute path; only paths below the root are taken");
  Parts parts;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") return refuse(path, "leaves the tree by '..'");
    if (part.size() > kMaxName)
      return refuse(path, "has a name of " + std::to_string(part.size()) + " bytes, the limit is " + std::to_string(kMaxName));
    parts.push_back(part);
  }
  if (parts.size() > kMaxDepth)
    return refuse(path, "is " + std::to_string(parts.size()) + " levels deep, the limit is " + std::to_string(kMaxDepth));
  return parts;
}

// For each entry of a directory.
Status FileTree::charge_entry(std::string_view path, size_t metadata_bytes) {
  if (++named_ > limits_.max_files)
    return refuse(path, "is one file more than the limit of " + std::to_string(limits_.max_files));
  return charge(path, metadata_bytes);
}

Status FileTree::charge(std::string_view path, size_t metadata_bytes) {
  metadata_bytes_ += metadata_bytes;
  if (metadata_bytes_ > limits_.max_metadata_bytes)
    return refuse(path, "and what came before have more than " + std::to_string(limits_.max_metadata_bytes) +
                            " bytes of names and attributes");
  return {};
}

Status FileTree::check_room(std::string_view path, NodeId directory) const {
  if (nodes_[directory].children.size() < limits_.max_files_per_directory) return {};
  return refuse(path, "is in a directory of more than " + std::to_string(limits_.max_files_per_directory) + " files");
}

FileTree::NodeId FileTree::new_node(Node node) {
  node.layer = layer_;
  nodes_.push_back(std::move(node));
  return static_cast<NodeId>(nodes_.size() - 1);
}

// The directory that holds the last part, made if nobody named it.
Result<FileTree::NodeId> FileTree::directory_for(std::string_view path, const Parts& parts) {
  NodeId at = kRoot;
  for (size_t i = 0; i + 1 < parts.size(); i++) {
    const auto it = nodes_[at].children.find(parts[i]);
    if (it == nodes_[at].children.end()) {
      TRY(check_room(path, at));
      TRY(charge_entry(path, parts[i].size()));
      const NodeId made = new_node({});
      nodes_[at].children.emplace(parts[i], made);
      at = made;
      continue;
    }
    at = it->second;
    if (nodes_[at].kind == Kind::kSymlink) return refuse(path, "goes through the symbolic link '" + shown(parts[i]) + "'");
    if (nodes_[at].kind == Kind::kFile) return refuse(path, "goes through the file '" + shown(parts[i]) + "'");
  }
  if (!nodes_[at].children.contains(parts.back())) TRY(check_room(path, at));
  return at;
}

Result<FileTree::NodeId> FileTree::add(std::string_view path, Node node) {
  TRY_ASSIGN(const Parts parts, split(path));
  if (parts.empty()) return refuse(path, "is the root, which is a directory");
  TRY_ASSIGN(const NodeId parent, directory_for(path, parts));
  TRY(charge_entry(path, parts.back().size() + metadata_of(node)));
  const NodeId id = new_node(std::move(node));
  nodes_[parent].children.insert_or_assign(std::string(parts.back()), id);
  return id;
}

Status FileTree::add_directory(std::string_view path, Attributes attributes) {
  TRY_ASSIGN(const Parts parts, split(path));
  std::optional<NodeId> there = find(path);
  if (!there || nodes_[*there].kind != Kind::kDirectory) {
    TRY_ASSIGN(there, add(path, {.kind = Kind::kDirectory}));
  }
  Node& node = nodes_[*there];
  node.attributes = std::move(attributes);
  node.layer = layer_;
  return charge(path, metadata_of(node));
}

Status FileTree::add_file(std::string_view path, Attributes attributes, SpoolRange content) {
  TRY(add(path, {.kind = Kind::kFile, .attributes = std::move(attributes), .content = content}));
  return {};
}

Status FileTree::add_symlink(std::string_view path, Attributes attributes, std::string target) {
  if (target.empty() || target.size() > kMaxTarget || target.find('\0') != target.npos)
    return refuse(path, "is a symbolic link to " + std::to_string(target.size()) + " bytes; 1 to " +
                            std::to_string(kMaxTarget) + ", none of them zero");
  TRY(add(path, {.kind = Kind::kSymlink, .attributes = std::move(attributes), .target = std::move(target)}));
  return {};
}

Status FileTree::add_hard_link(std::string_view path, std::string_view existing) {
  TRY_ASSIGN(const Parts parts, split(path));
  TRY(split(existing));
  const std::optional<NodeId> target = find(existing);
  if (!target) return refuse(path, "is a hard link to '" + shown(existing) + "', which is not in the tree");
  if (nodes_[*target].kind == Kind::kDirectory)
    return refuse(path, "is a hard link to '" + shown(existing) + "', which is a directory");
  if (parts.empty()) return refuse(path, "is the root, which is a directory");
  TRY_ASSIGN(const NodeId parent, directory_for(path, parts));
  TRY(charge_entry(path, parts.back().size()));
  nodes_[*target].layer = layer_;
  nodes_[parent].children.insert_or_assign(std::string(parts.back()), *target);
  return {};
}

std::optional<FileTree::NodeId> FileTree::find(std::string_view path) const {
  const Result<Parts> parts = split(path);
  if (!parts) return std::nullopt;
  NodeId at = kRoot;
  for (const std::string_view part : *parts) {
    const auto it = nodes_[at].children.find(part);
    if (it == nodes_[at].children.end()) return std::nullopt;
    at = it->second;
  }
  return at;
}

// True: nothing of it is left.
bool FileTree::prune(NodeId id) {
  prune_children(id);
  return nodes_[id].layer < layer_ && nodes_[id].children.empty();
}

void FileTree::prune_children(NodeId id) {
  std::erase_if(nodes_[id].children, [this](const auto& child) { return prune(child.second); });
}

Status FileTree::remove(std::string_view path) {
  TRY_ASSIGN(const Parts parts, split(path));
  const std::optional<NodeId> there = find(path);
  if (parts.empty() || !there || !prune(*there)) return {};
  TRY_ASSIGN(const NodeId parent, directory_for(path, parts));
  nodes_[parent].children.erase(nodes_[parent].children.find(parts.back()));
  return {};
}

Status FileTree::remove_children(std::string_view path) {
  TRY(split(path));
  if (const std::optional<NodeId> there = find(path)) prune_children(*there);
  return {};
}

}  // namespace ramet::commit
