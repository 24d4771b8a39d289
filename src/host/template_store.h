// host/template_store.h - templates on disk: check of an upload, atomic replacement, opening for a boot.
//
//   templates/NAME/{template.json, vmlinux, initrd}     a template: immutable, replaced as a whole
//   templates/NAME/template.json                        one that is a saved machine in the store (docs/templates.md)
//   templates/.upload-NAME/                             files on their way in (template_uploads.h); nobody boots them
//
// The disk becomes an image in the store, named by its SHA-256; templates with the same disk share it. A disk.img that an
// earlier version left beside the kernel is brought in when it is first used.
// A commit verifies size and SHA-256 of every file, brings the disk into the store, syncs, and exchanges the directories: at
// any time there is the old template or the new one. Machines that run use the old disk. Not here: booting
// (zygotes.h), when an image that nobody needs goes (host_impl.h). Thread: any.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "host/images/image_store.h"
#include "host/paths.h"
#include "host/streams.h"
#include "host/template_uploads.h"
#include "host/types.h"

namespace ramet::host {

struct Template {
  TemplateInfo info;
  std::string digest;  // SHA-256 of template.json
};
struct TemplateFiles {
  UniqueFd kernel, initrd;  // read-only
  std::shared_ptr<OpenImage> disk;
};
// What its disk is called in the store.
// Requires: it has files.
inline ImageId disk_image_id(const TemplateInfo& t) { return {ImageSpace::kTemplate, t.files[2].sha256}; }

// Errors: kInvalid with the field that is wrong.
Result<TemplateInfo> parse_template_json(std::string_view text);
// Of one that is a saved machine; such a description is never uploaded.
std::string saved_template_json(const TemplateInfo& info);

class TemplateStore {
 public:
  // `admit`: whether the disk has room for so many bytes more of an upload.
  TemplateStore(const Paths& paths, ImageStore& images, TemplateUploads::Admit admit, TemplateUploads::Limits limits = {})
      : paths_(paths), images_(images), uploads_(paths, std::move(admit), limits) {}

  Result<std::unique_ptr<TemplateFileWriter>> upload_file(const std::string& name, const std::string& file);
  Result<Template> commit(const std::string& name, std::string_view template_json);
  // A template of saved_template_json(), instead of the one of that name.
  Result<Template> commit_saved(const std::string& name, std::string_view template_json);
  // Where there is no such template, an upload of it that nobody is writing.   Errors: kNotFound, by errno.
  Status remove(const std::string& name);
  // Those that nobody goes on with.
  void drop_old_uploads() { uploads_.drop_old(); }
  // Errors: kNotFound, kCorrupt.
  Result<Template> get(const std::string& name) const;
  std::vector<Template> list() const;
  // Removes the disks that neither a template nor anybody of `used` needs; none while a commit is under way, whose disk nobody
  // knows yet.   Errors: kCorrupt (a template: what it needs is not known), kIo.
  Status keep_needed_disks(std::set<std::string> used);
  // Errors: kCorrupt when a file is missing or has another size than template.json says; those of ImageStore::import_raw.
  Result<TemplateFiles> open_files(const Template& t);
  // Uploads and replaced templates left behind by an earlier daemon.
  void sweep() const;

 private:
  // The directory becomes the template. Requires: commit_mutex_ held.
  Result<Template> publish(const std::string& name, const std::string& dir);
  Status check_uploaded(const TemplateFile& file, const std::string& name);
  std::vector<std::string> names() const;
  Status take_over(const TemplateFile& file, const std::string& name);
  // The disk in the store; a raw file of it in `dir` is brought in, and goes. Requires: commit_mutex_ held.
  Result<std::shared_ptr<OpenImage>> disk_in_store(const TemplateInfo& t, const std::string& dir);

  const Paths& paths_;
  ImageStore& images_;
  TemplateUploads uploads_;
  std::mutex commit_mutex_;  // one commit or removal at a time
};

}  // namespace ramet::host
