#include "users.h"

#include <grp.h>
#include <unistd.h>

#include <charconv>
#include <functional>
#include <optional>

#include "base/file.h"

namespace ramet::guest {
namespace {

constexpr size_t kMaxDatabaseBytes = 4u << 20;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> fields;
  for (;;) {
    const size_t at = text.find(separator);
    fields.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return fields;
    text.remove_prefix(at + 1);
  }
}

std::optional<uint32_t> number(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

using Fields = std::vector<std::string_view>;

// Calls `each` with the fields of every line that has at least `min_fields`, until it answers true.
void for_each_entry(const char* path, size_t min_fields, const std::function<bool(const Fields&)>& each) {
  const Result<std::string> text = read_file(path, kMaxDatabaseBytes);
  if (!text) return;
  for (const std::string_view line : split(*text, '\n')) {
    const Fields fields = split(line, ':');
    if (fields.size() >= min_fields && each(fields)) return;
  }
}

std::optional<User> lookup(const std::function<bool(const Fields&)>& matches) {
  std::optional<User> found;
  for_each_entry("/etc/passwd", 7, [&](const Fields& f) {
    if (!matches(f)) return false;
    const std::optional<uint32_t> uid = number(f[2]), gid = number(f[3]);
    if (!uid || !gid) return false;
    found = User{*uid, *gid, std::string(f[0]), std::string(f[5].empty() ? "/" : f[5]),
                 std::string(f[6].empty() ? "/bin/sh" : f[6])};
    return true;
  });
  return found;
}

}  // namespace

std::string default_user() {
  const Result<std::string> text = read_file("/etc/ramet/default_user", 256);
  const std::string name = text ? text->substr(0, text->find('\n')) : "";
  return name.empty() ? "root" : name;
}

Result<User> find_user(std::string_view name_or_number) {
  const std::string by_image = name_or_number.empty() ? default_user() : "";
  const std::string_view wanted = name_or_number.empty() ? by_image : name_or_number;
  if (std::optional<User> user = lookup([&](const Fields& f) { return f[0] == wanted; })) return *user;
  const std::optional<uint32_t> uid = wanted == "root" ? 0 : number(wanted);
  if (!uid) return fail(ErrorKind::kNotFound, "no user \"" + std::string(wanted) + "\" in this guest");
  if (std::optional<User> user = lookup([&](const Fields& f) { return number(f[2]) == uid; })) return *user;
  User unnamed{.uid = *uid, .gid = *uid};
  if (*uid == 0) unnamed.name = "root";
  return unnamed;
}

std::vector<gid_t> groups_of(const User& user) {
  std::vector<gid_t> groups{user.gid};
  if (user.name.empty()) return groups;
  for_each_entry("/etc/group", 4, [&](const Fields& f) {
    const std::optional<uint32_t> gid = number(f[2]);
    if (!gid || *gid == user.gid) return false;
    for (const std::string_view member : split(f[3], ','))
      if (member == user.name) groups.push_back(*gid);
    return false;
  });
  return groups;
}

std::string user_name(uid_t uid) {
  const std::optional<User> user = lookup([&](const Fields& f) { return number(f[2]) == uid; });
  return user ? user->name : "";
}

std::string group_name(gid_t gid) {
  std::string name;
  for_each_entry("/etc/group", 3, [&](const Fields& f) {
    if (number(f[2]) != gid) return false;
    name = f[0];
    return true;
  });
  return name;
}

Result<gid_t> find_group(std::string_view name) {
  std::optional<uint32_t> gid;
  for_each_entry("/etc/group", 3, [&](const Fields& f) {
    if (f[0] == name) gid = number(f[2]);
    return gid.has_value();
  });
  if (!gid) return fail(ErrorKind::kNotFound, "no group \"" + std::string(name) + "\" in this guest");
  return *gid;
}

Status become(const User& user) {
  if (user.uid == ::geteuid() && user.gid == ::getegid() && user.uid != 0) return {};  // tests run as an ordinary user
  const std::vector<gid_t> groups = groups_of(user);
  if (::setgroups(groups.size(), groups.data()) < 0) return fail_errno("setgroups");
  if (::setresgid(user.gid, user.gid, user.gid) < 0) return fail_errno("setresgid");
  if (::setresuid(user.uid, user.uid, user.uid) < 0) return fail_errno("setresuid");
  return {};
}

}  // namespace ramet::guest
