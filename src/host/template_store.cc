#include "host/template_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "chunk/digest.h"
#include "chunk/sha256.h"
#include "host/crash_point.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

constexpr size_t kBlock = 4096;
constexpr const char* kFileNames[] = {"vmlinux", "initrd", "disk.img"};

bool is_template_file(const std::string& name) {
  return std::find(std::begin(kFileNames), std::end(kFileNames), name) != std::end(kFileNames);
}

Result<std::string> hash_file(const std::string& path) {
  TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY | O_NOFOLLOW));
  chunk::Sha256 sha;
  std::string buffer(1 << 20, '\0');
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read " + path);
    if (n == 0) return sha.end().to_hex();
    sha.add(as_bytes(std::string_view(buffer).substr(0, static_cast<size_t>(n))));
  }
}

Status check_elf(const std::string& path) {
  TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY | O_NOFOLLOW));
  std::byte head[20];
  const Status got = pread_exact(fd.get(), head, 0);
  static constexpr unsigned char kElf64[5] = {0x7f, 'E', 'L', 'F', 2};
  if (!got || std::memcmp(head, kElf64, sizeof kElf64) != 0)
    return fail(ErrorKind::kInvalid, "vmlinux is not an ELF64 file (a bzImage must be uncompressed first)");
  return {};
}

// Errors: kCorrupt (missing, or of another size).
Result<UniqueFd> open_whole(const std::string& path, const TemplateFile& f) {
  Result<UniqueFd> fd = open_file(path, O_RDONLY | O_NOFOLLOW);
  if (!fd) return fail(ErrorKind::kCorrupt, fd.error().message());
  TRY_ASSIGN(const uint64_t size, file_size(fd->get()));
  if (size == f.bytes) return fd;
  return fail(ErrorKind::kCorrupt,
              f.name + " has " + std::to_string(size) + " bytes, template.json says " + std::to_string(f.bytes));
}

}  // namespace

Result<std::unique_ptr<TemplateFileWriter>> TemplateStore::upload_file(const std::string& name, const std::string& file) {
  TRY(check_template_name(name));
  if (!is_template_file(file))
    return fail(ErrorKind::kInvalid, "a template has the files vmlinux, initrd and disk.img, not '" + file.substr(0, 64) + "'");
  return uploads_.write(name, file);
}

Result<Template> TemplateStore::commit(const std::string& name, std::string_view template_json) {
  TRY(check_template_name(name));
  const std::lock_guard lock(commit_mutex_);
  TRY_ASSIGN(const std::shared_ptr<TemplateUploads::Use> upload, uploads_.use(name));
  TRY_ASSIGN(const TemplateInfo info, parse_template_json(template_json));
  if (!info.saved.empty()) return fail(ErrorKind::kInvalid, "a saved machine is not uploaded: it is made of a snapshot");
  if (info.name != name)
    return fail(ErrorKind::kInvalid, "template.json names '" + info.name + "', the request '" + name + "'");
  const std::string dir = uploads_.directory(name);
  for (const TemplateFile& f : info.files) TRY(check_uploaded(f, name));
  TRY(check_elf(dir + "/vmlinux"));
  // Held until the template is there: then it is known to be needed.
  TRY_ASSIGN(const std::shared_ptr<OpenImage> disk, disk_in_store(info, dir));
  crash_point("template.imported");
  TRY(replace_file(dir + "/template.json", template_json));
  for (const char* f : kFileNames) ::unlink((dir + "/" + f + ".sha256").c_str());
  return publish(name, dir);
}

Result<Template> TemplateStore::commit_saved(const std::string& name, std::string_view template_json) {
  TRY(check_template_name(name));
  const std::lock_guard lock(commit_mutex_);
  const std::string dir = paths_.templates() + "/.saved-" + name;
  std::error_code ec;
  std::filesystem::remove_all(dir, ec);
  TRY(make_directories(dir, 0700));
  TRY(replace_file(dir + "/template.json", template_json));
  return publish(name, dir);
}

Result<Template> TemplateStore::publish(const std::string& name, const std::string& dir) {
  const std::string target = paths_.template_dir(name);
  TRY(sync_directory(dir));
  struct stat st;
  if (::stat(target.c_str(), &st) == 0) {
    if (::renameat2(AT_FDCWD, dir.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) < 0)
      return fail_errno("replace template " + name);
    std::error_code ec;
    std::filesystem::remove_all(dir, ec);
  } else if (::rename(dir.c_str(), target.c_str()) < 0) {
    return fail_errno("publish template " + name);
  }
  TRY(sync_directory(paths_.templates()));
  crash_point("template.published");
  return get(name);
}

Status TemplateStore::check_uploaded(const TemplateFile& f, const std::string& name) {
  const std::string path = uploads_.directory(name) + "/" + f.name;
  struct stat st;
  if (::stat(path.c_str(), &st) < 0) return take_over(f, name);
  if (static_cast<uint64_t>(st.st_size) != f.bytes)
    return fail(ErrorKind::kCorrupt,
                "'" + f.name + "' has " + std::to_string(st.st_size) + " bytes, template.json says " + std::to_string(f.bytes));
  const Result<std::string> hash = read_file(path + ".sha256", 64);  // made while it was written
  TRY_ASSIGN(const std::string digest, hash ? hash : hash_file(path));
  if (digest == f.sha256) return {};
  return fail(ErrorKind::kCorrupt, "'" + f.name + "' has SHA-256 " + digest + ", template.json says " + f.sha256);
}

// What the host has already need not travel again: any template's disk, and files of the present template.
Status TemplateStore::take_over(const TemplateFile& f, const std::string& name) {
  const std::string dir = uploads_.directory(name);
  TRY(make_directories(dir, 0700));
  if (f.name == "disk.img")
    if (const Result<std::shared_ptr<OpenImage>> there = images_.use({ImageSpace::kTemplate, f.sha256}))
      if ((*there)->blocks() == f.bytes / kBlock) return {};
  const Result<Template> old = get(name);
  const bool same = old && std::any_of(old->info.files.begin(), old->info.files.end(), [&](const TemplateFile& o) {
                      return o.name == f.name && o.sha256 == f.sha256 && o.bytes == f.bytes;
                    });
  if (!same) return fail(ErrorKind::kConflict, "file '" + f.name + "' of template '" + name + "' was not uploaded");
  if (::link((paths_.template_dir(name) + "/" + f.name).c_str(), (dir + "/" + f.name).c_str()) < 0)
    return fail_errno("take over " + f.name);
  return replace_file(dir + "/" + f.name + ".sha256", f.sha256);
}

Result<std::shared_ptr<OpenImage>> TemplateStore::disk_in_store(const TemplateInfo& t, const std::string& dir) {
  const TemplateFile& f = t.files[2];
  const std::string path = dir + "/" + f.name;
  Result<std::shared_ptr<OpenImage>> image = images_.use(disk_image_id(t));
  if (!image && image.error().kind() != ErrorKind::kNotFound) return image;
  if (!image) {
    TRY_ASSIGN(const UniqueFd raw, open_whole(path, f));
    image = images_.import_raw(disk_image_id(t), raw.get(), nullptr);
    if (!image) return image;
    images_.warm(**image, raw.get());  // it is about to be booted
  }
  if (::unlink(path.c_str()) < 0 && errno != ENOENT) return fail_errno("remove " + path);
  return image;
}

Status TemplateStore::remove(const std::string& name) {
  TRY(check_template_name(name));
  const std::lock_guard lock(commit_mutex_);
  const std::string target = paths_.template_dir(name), away = paths_.templates() + "/.removed-" + name;
  std::error_code ec;
  std::filesystem::remove_all(away, ec);
  if (::rename(target.c_str(), away.c_str()) < 0) {
    if (errno == ENOENT && uploads_.give_up(name)) return {};
    if (errno == ENOENT) return fail(ErrorKind::kNotFound, "there is no template '" + name + "'");
    return fail_errno("remove template " + name);
  }
  TRY(sync_directory(paths_.templates()));
  std::filesystem::remove_all(away, ec);
  return {};
}

Result<Template> TemplateStore::get(const std::string& name) const {
  TRY(check_template_name(name));
  const std::string path = paths_.template_dir(name) + "/template.json";
  Result<std::string> text = read_file(path, 1 << 20);
  if (!text && text.error().kind() == ErrorKind::kNotFound)
    return fail(ErrorKind::kNotFound, "there is no template '" + name + "'");
  if (!text) return tl::unexpected<Error>(std::move(text).error());
  Result<TemplateInfo> info = parse_template_json(*text);
  if (!info) return fail(ErrorKind::kCorrupt, "template '" + name + "': " + info.error().message());
  Template t{std::move(*info), {}};
  t.digest = t.info.digest = chunk::sha256(as_bytes(*text)).to_hex();
  struct stat st;
  if (::stat(path.c_str(), &st) == 0) t.info.committed_at_ns = int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
  return t;
}

std::vector<std::string> TemplateStore::names() const {
  std::vector<std::string> names;
  if (DIR* dir = ::opendir(paths_.templates().c_str())) {
    while (const dirent* e = ::readdir(dir))
      if (e->d_name[0] != '.') names.emplace_back(e->d_name);
    ::closedir(dir);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Template> TemplateStore::list() const {
  std::vector<Template> out;
  for (const std::string& n : names())
    if (Result<Template> t = get(n)) out.push_back(std::move(*t));
  return out;
}

Status TemplateStore::keep_needed_disks(std::set<std::string> used) {
  const std::unique_lock lock(commit_mutex_, std::try_to_lock);
  if (!lock) return {};
  for (const std::string& name : names()) {
    TRY_ASSIGN(const Template t, get(name));
    if (!t.info.files.empty()) used.insert(disk_image_id(t.info).name);
  }
  return images_.keep_templates(used);
}

Result<TemplateFiles> TemplateStore::open_files(const Template& t) {
  const std::string dir = paths_.template_dir(t.info.name), what = "template '" + t.info.name + "'";
  TemplateFiles out;
  const auto open = [&]() -> Status {
    TRY_ASSIGN(out.kernel, open_whole(dir + "/vmlinux", t.info.files[0]));
    TRY_ASSIGN(out.initrd, open_whole(dir + "/initrd", t.info.files[1]));
    const std::lock_guard lock(commit_mutex_);
    TRY_ASSIGN(out.disk, disk_in_store(t.info, dir));
    return {};
  };
  if (Status opened = open(); !opened) return tl::unexpected<Error>(std::move(opened).error().with_context(what));
  return out;
}

void TemplateStore::sweep() const {
  uploads_.sweep();
  std::error_code ec;
  for (const auto& e : std::filesystem::directory_iterator(paths_.templates(), ec))
    for (const char* left : {".removed-", ".saved-"})
      if (e.path().filename().string().starts_with(left)) std::filesystem::remove_all(e.path(), ec);
}

}  // namespace ramet::host
