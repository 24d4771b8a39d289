// host/template_store.h - templates on disk: uploads, their check, atomic replacement, opening for a boot.
//
//   templates/NAME/{template.json, vmlinux, initrd, disk.img}     a template: immutable, replaced as a whole
//   templates/.upload-NAME/                                       files on their way in; nobody boots them
//
// A commit verifies size and SHA-256 of every file, syncs, and exchanges the directories: at any time there is the old template
// or the new one. Machines that run hold the old files open. Not here: booting (template_runtime.h). Thread: any.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "host/paths.h"
#include "host/streams.h"
#include "host/types.h"

namespace ramet::host {

struct Template {
  TemplateInfo info;
  std::string digest;  // SHA-256 of template.json
};
struct TemplateFiles {
  UniqueFd kernel, initrd, disk;  // read-only
};

// Errors: kInvalid with the field that is wrong.
Result<TemplateInfo> parse_template_json(std::string_view text);

class TemplateStore {
 public:
  TemplateStore(const Paths& paths, uint64_t disk_reserve_bytes) : paths_(paths), disk_reserve_bytes_(disk_reserve_bytes) {}

  Result<std::unique_ptr<TemplateFileWriter>> upload_file(const std::string& name, const std::string& file);
  Result<Template> commit(const std::string& name, std::string_view template_json);
  Status remove(const std::string& name);
  // Errors: kNotFound, kCorrupt.
  Result<Template> get(const std::string& name) const;
  std::vector<Template> list() const;
  // Errors: kCorrupt when a file is missing or has another size than template.json says.
  Result<TemplateFiles> open_files(const Template& t) const;
  // Uploads and replaced templates left behind by an earlier daemon.
  void sweep() const;

 private:
  std::string upload_dir(const std::string& name) const { return paths_.templates() + "/.upload-" + name; }

  const Paths& paths_;
  const uint64_t disk_reserve_bytes_;
  std::mutex commit_mutex_;  // one commit or removal at a time
};

}  // namespace ramet::host
