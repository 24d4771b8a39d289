// ramet-store/commands.h - one function per command; each prints its result on stdout, as text or as one line of JSON.
// Thread: one.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace ramet::store_tool {

struct Place {
  std::string directory;
  bool json = false;
  bool quiet = false;  // no progress

  std::string packs() const { return directory + "/packs"; }
  std::string index() const { return directory + "/index.db"; }
  std::string images() const { return directory + "/images"; }
  std::string templates() const { return directory + "/templates"; }
  std::string snapshots() const { return directory + "/snapshots"; }
};

struct Import {
  std::string file, name;
  std::string format = "raw";
  std::string parent, tag, work_directory;
  uint64_t disk_mib = 0;
};
Status import_image(const Place& place, const Import& import);
Status export_image(const Place& place, const std::string& name, const std::string& file, const std::string& format);
Status list_images(const Place& place);
Status show_image(const Place& place, const std::string& name);
Status diff_images(const Place& place, const std::string& a, const std::string& b);
Status remove_image(const Place& place, const std::string& name);
Status collect_garbage(const Place& place);
Status show_stats(const Place& place);
// False: problems were found, and printed.
Result<bool> verify_store(const Place& place);
Result<bool> rebuild(const Place& place);

}  // namespace ramet::store_tool
