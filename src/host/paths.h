// host/paths.h - where everything of one host lies. The only place that builds such names.
// Not here: creating anything. Thread: values.
#pragma once

#include <string>

namespace ramet::host {

struct Paths {
  std::string state_dir;
  std::string runtime_dir;

  std::string lock() const { return state_dir + "/lock"; }
  std::string database() const { return state_dir + "/ramet.db"; }
  std::string ballast() const { return state_dir + "/ballast"; }
  std::string templates() const { return state_dir + "/templates"; }
  std::string template_dir(const std::string& name) const { return templates() + "/" + name; }
  std::string store() const { return state_dir + "/store"; }
  std::string machines() const { return state_dir + "/machines"; }
  std::string machine_dir(const std::string& id) const { return machines() + "/" + id; }
  std::string console(const std::string& id) const { return machine_dir(id) + "/console.log"; }
  std::string overlays() const { return state_dir + "/overlays"; }
  std::string overlay_data(const std::string& id) const { return overlays() + "/" + id + ".data"; }
  std::string overlay_log(const std::string& id) const { return overlays() + "/" + id + ".log"; }
  std::string chunk_socket() const { return runtime_dir + "/chunk.sock"; }
  std::string sockets() const { return runtime_dir + "/vm"; }
  std::string socket(const std::string& id) const { return sockets() + "/" + id + ".sock"; }
};

}  // namespace ramet::host
