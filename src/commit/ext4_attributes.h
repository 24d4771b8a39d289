// commit/ext4_attributes.h - what an inode says beside its content, as a member of a tar has it. Thread: one.
#pragma once

#include "commit/ext4_content.h"

namespace ramet::commit {

// Mode, owner, time, device, extended attributes and POSIX ACLs; attributes that are the file system's own are left out.
// Errors: kInvalid, those of the disk.
Status read_attributes(const Ext4Disk& disk, Ext4Inode& inode, TarMember& member);

}  // namespace ramet::commit
