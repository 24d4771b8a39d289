// host/template_uploads.h - files of templates on their way in, until the commit takes them.
//
//   templates/.upload-NAME/{vmlinux, initrd, disk.img}     finished files; .sha256 beside each
//                         FILE.up-ID                       one that is being written
//
// An upload begins with its first file and belongs to nobody's connection: the files come by requests of their own. It ends by
// a commit, or when nobody has written to it for Limits::idle, or when a newer one needs its place; then its files go. What an
// earlier daemon left goes when one starts. Not here: checking and publishing (template_store.h), whose drop_old() is called by
// (host_impl.h). Thread: any.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "host/paths.h"
#include "host/streams.h"

namespace ramet::host {

class TemplateUploads {
 public:
  struct Limits {
    Milliseconds idle{std::chrono::hours(1)};
    size_t uploads = 32;  // at a time
  };
  // Whether the disk has room for so many bytes more.   Errors: kNoSpace.
  using Admit = std::function<Status(uint64_t bytes)>;

  TemplateUploads(const Paths& paths, Admit admit, Limits limits);

  // Requires: both names are checked.   Errors: kConflict (too many at a time, all being written), by errno.
  Result<std::unique_ptr<TemplateFileWriter>> write(const std::string& name, const std::string& file);
  // The upload as a commit finds it, perhaps empty. It does not end while this is held.   Errors: as write().
  class Use;
  Result<std::shared_ptr<Use>> use(const std::string& name);
  std::string directory(const std::string& name) const { return paths_.templates() + "/.upload-" + name; }
  // False: there is none, or it is in use.
  bool give_up(const std::string& name);
  void drop_old();
  // All, of an earlier daemon.
  void sweep() const;

 private:
  struct Upload {
    size_t users = 0;
    Deadline last_used{};
  };
  using Table = std::map<std::string, Upload>;
  void leave(const std::string& name);
  Status make_room_for_one();
  void remove(Table::iterator upload);

  const Paths& paths_;
  const Admit admit_;
  const Limits limits_;
  std::mutex mutex_;  // held while files of an upload that ended are deleted: nobody else touches that name
  Table uploads_;     // guarded by mutex_
};

// Keeps an upload from ending. Dies before its TemplateUploads.
class TemplateUploads::Use {
 public:
  Use(TemplateUploads& uploads, std::string name) : uploads_(uploads), name_(std::move(name)) {}
  ~Use() { uploads_.leave(name_); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  TemplateUploads& uploads_;
  const std::string name_;
};

}  // namespace ramet::host
