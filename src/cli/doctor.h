// cli/doctor.h - what this computer offers for running sandboxes, one finding per facility. Not here: printing (cmd_doctor).
// Thread: stateless; each check looks and leaves nothing behind.
#pragma once

#include <string>
#include <vector>

namespace ramet::cli {

enum class Level { kOk, kWarn, kFail };
struct Finding {
  std::string name;  // one word
  Level level = Level::kOk;
  std::string text;  // what was found
  std::string hint;  // what to do, when not ok
};

Finding check_kvm(bool* usable);
Finding check_qemu(bool kvm_usable);
Finding check_cgroup(const std::string& mounts_text, const std::string& root);
Finding check_memory(const std::string& meminfo_text);
Finding check_file_system(const std::string& directory);
Finding check_userfaultfd();

}  // namespace ramet::cli
