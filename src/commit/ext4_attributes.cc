#include "commit/ext4_attributes.h"

#include <archive_entry.h>

#include <algorithm>
#include <cstring>

#include "base/endian.h"

namespace ramet::commit {
namespace {

constexpr uint32_t kNsPerSecond = 1'000'000'000;
constexpr size_t kMostXattrs = 4096, kMostXattrBytes = 1u << 20;

// ext4 has 34 bits of seconds, the upper two in the extra field, and above these the nanoseconds.
void read_time(const ext2_inode_large& raw, bool has_extra, TarMember& member) {
  member.mtime_s = static_cast<int32_t>(raw.i_mtime);
  if (!has_extra) return;
  member.mtime_s += static_cast<int64_t>(raw.i_mtime_extra & 3) << 32;
  const uint32_t ns = raw.i_mtime_extra >> 2;
  member.mtime_ns = ns < kNsPerSecond ? ns : 0;
}

// One of two encodings, by which of the words is used.
void read_device(const ext2_inode_large& raw, TarMember& member) {
  const uint32_t old = raw.i_block[0], now = raw.i_block[1];
  member.device_major = old ? old >> 8 & 0xff : (now & 0xfff00) >> 8;
  member.device_minor = old ? old & 0xff : (now & 0xff) | (now >> 12 & 0xfff00);
}

// As on disk: a version, then tag, permissions and, for those that are named, an id. False: it is no such list.
bool read_acl(std::string_view value, bool is_default, std::vector<AclEntry>& acl) {
  constexpr uint32_t kVersion = 1;
  constexpr uint16_t kUserObject = 1, kUser = 2, kGroupObject = 4, kGroup = 8, kMask = 16, kOther = 32;
  struct {
    le16 tag, permissions;
  } entry;
  le32 number;
  const auto take = [&value](auto& into) {
    if (value.size() < sizeof into) return false;
    std::memcpy(static_cast<void*>(&into), value.data(), sizeof into);
    value.remove_prefix(sizeof into);
    return true;
  };
  if (!take(number) || number != kVersion) return false;
  while (!value.empty()) {
    if (!take(entry) || entry.permissions > 7) return false;
    AclEntry out{.is_default = is_default, .permissions = entry.permissions};
    switch (entry.tag) {
      case kUserObject: out.tag = ARCHIVE_ENTRY_ACL_USER_OBJ; break;
      case kUser: out.tag = ARCHIVE_ENTRY_ACL_USER; break;
      case kGroupObject: out.tag = ARCHIVE_ENTRY_ACL_GROUP_OBJ; break;
      case kGroup: out.tag = ARCHIVE_ENTRY_ACL_GROUP; break;
      case kMask: out.tag = ARCHIVE_ENTRY_ACL_MASK; break;
      case kOther: out.tag = ARCHIVE_ENTRY_ACL_OTHER; break;
      default: return false;
    }
    if (entry.tag == kUser || entry.tag == kGroup) {
      if (!take(number) || number > INT32_MAX) return false;
      out.id = static_cast<int>(number);
    }
    acl.push_back(out);
  }
  return true;
}

struct Taking {
  TarMember& member;
  std::string wrong = {};
  size_t bytes = 0;

  // Whether to go on.
  bool take(std::string_view name, std::string_view value) {
    const bool access = name == "system.posix_acl_access";
    if (access || name == "system.posix_acl_default") {
      if (!read_acl(value, !access, member.acl)) wrong = "has an access list that is none";
      return wrong.empty();
    }
    if (!name.starts_with("user.") && !name.starts_with("security.") && !name.starts_with("trusted.")) return true;
    bytes += name.size() + value.size();
    if (bytes > kMostXattrBytes || member.xattrs.size() >= kMostXattrs) wrong = "has more extended attributes than fit";
    if (!std::ranges::all_of(name, [](char c) { return c > ' ' && c != '=' && c != '\x7f'; }))
      wrong = "has an extended attribute with a name that no tar can have";
    member.xattrs.emplace_back(name, value);
    return wrong.empty();
  }
};

struct CloseXattrs {
  void operator()(ext2_xattr_handle* handle) const { ext2fs_xattrs_close(&handle); }
};

Status read_xattrs(const Ext4Disk& disk, Ext4Inode& inode, TarMember& member) {
  ext2_xattr_handle* opened = nullptr;
  TRY_EXT4(disk, ext2fs_xattrs_open(disk.fs(), inode.number, &opened), member.path);
  const std::unique_ptr<ext2_xattr_handle, CloseXattrs> handle(opened);
  TRY_EXT4(disk, ext2fs_xattrs_read(handle.get()), member.path);
  Taking taking{member};
  const auto each = [](char* name, char* value, size_t bytes, void* self) {
    return static_cast<Taking*>(self)->take(name, {value, bytes}) ? 0 : XATTR_ABORT;
  };
  TRY_EXT4(disk, ext2fs_xattrs_iterate(handle.get(), each, &taking), member.path);
  return taking.wrong.empty() ? Status() : broken(member.path, taking.wrong);
}

}  // namespace

Status read_attributes(const Ext4Disk& disk, Ext4Inode& inode, TarMember& member) {
  const ext2_inode_large& raw = inode.raw;
  member.mode = raw.i_mode;
  member.uid = raw.i_uid | uint32_t{raw.osd2.linux2.l_i_uid_high} << 16;
  member.gid = raw.i_gid | uint32_t{raw.osd2.linux2.l_i_gid_high} << 16;
  const bool is_large = EXT2_INODE_SIZE(disk.fs()->super) > EXT2_GOOD_OLD_INODE_SIZE;
  read_time(raw, is_large && inode_includes(EXT2_GOOD_OLD_INODE_SIZE + size_t{raw.i_extra_isize}, i_mtime_extra), member);
  if (S_ISCHR(raw.i_mode) || S_ISBLK(raw.i_mode)) read_device(raw, member);
  return read_xattrs(disk, inode, member);
}

}  // namespace ramet::commit
