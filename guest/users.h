// guest/users.h - users and groups from /etc/passwd and /etc/group, without libc's name services (we are static).
// Not here: changing identity (child.h does). Thread: pure functions over files. Reads block: call from a forked child.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ramet::guest {

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;
  std::string home = "/";
  std::string shell = "/bin/sh";
};

// Who acts when a request names nobody: the image says it in /etc/ramet/default_user; else root.
std::string default_user();
// By name or number; empty is the default user. A number without an entry is a user without name whose home is "/".
// Errors: kNotFound.
Result<User> find_user(std::string_view name_or_number);
// The primary group and all that list the user.
std::vector<gid_t> groups_of(const User& user);
// Empty when there is none.
std::string user_name(uid_t uid);
std::string group_name(gid_t gid);
// Errors: kNotFound.
Result<gid_t> find_group(std::string_view name);

// The calls that make this process that user: groups, gid, uid. Errors: by errno.
Status become(const User& user);

}  // namespace ramet::guest
