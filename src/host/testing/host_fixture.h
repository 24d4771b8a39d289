// host/testing/host_fixture.h - a whole Host over the real ramet-vmm, with tiny guests as templates: directories of its own,
// and the looking-around that tests need. Not in the product. Thread: one test.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/file.h"
#include "host/host.h"

namespace ramet::host::testing {

inline HostOptions tiny_options(const std::string& root) {
  HostOptions o;
  o.state_dir = root + "/state";
  o.runtime_dir = root + "/run";
  o.vmm_program = std::string(RAMET_BINARY_DIR) + "/bin/ramet-vmm";
  o.agent = AgentUse::kNone;
  o.boot_deadline = Milliseconds(30'000);
  o.child_deadline = Milliseconds(10'000);
  o.max_fork_children = 100;
  o.memory_reserve_mib = 64;
  o.disk_reserve_mib = 16;
  o.default_ttl_seconds = 600;
  o.idle_zygote = Milliseconds(200);
  o.store_interval = Milliseconds(500);
  o.store_booted_after = Milliseconds(0);
  return o;
}

inline std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[32];
  unsigned length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr);
  std::string out;
  for (const unsigned char b : digest) {
    static constexpr char kHex[] = "0123456789abcdef";
    out += kHex[b >> 4];
    out += kHex[b & 15];
  }
  return out;
}

// Uploads the tiny guest `guest` as template `name`.   Requires: a disk of 1 MiB.
inline Status upload_tiny(Host& host, const std::string& name, const std::string& guest, const std::string& disk) {
  TRY_ASSIGN(const std::string kernel, ramet::read_file(std::string(RAMET_GUESTS_DIR) + "/" + guest));
  const std::string initrd = "none";
  std::string files;
  for (const auto& [file, bytes] :
       {std::pair<std::string, const std::string&>{"vmlinux", kernel}, {"initrd", initrd}, {"disk.img", disk}}) {
    TRY_ASSIGN(const std::unique_ptr<TemplateFileWriter> w, host.upload_template_file(name, file));
    TRY(w->write(as_bytes(bytes)));
    TRY(w->finish());
    files += (files.empty() ? "" : ",") +
             ("\"" + file + "\":{\"bytes\":" + std::to_string(bytes.size()) + ",\"sha256\":\"" + sha256_hex(bytes) + "\"}");
  }
  TRY(host.commit_template(name, "{\"format\":1,\"name\":\"" + name +
                                     "\",\"kernel_release\":\"tiny\",\"vcpus\":1,\"memory_mib\":64,\"disk_bytes\":1048576,"
                                     "\"files\":{" +
                                     files + "}}"));
  return {};
}
inline Status upload_tiny(Host& host, const std::string& name, const std::string& guest) {
  std::string disk(1 << 20, '\0');
  disk.replace(4096, name.size(), name);  // no two templates have the same disk; block 0 is the guest's own
  return upload_tiny(host, name, guest, disk);
}

inline std::set<std::string> names_in(const std::string& dir) {
  std::set<std::string> out;
  std::error_code ec;
  for (const auto& e : std::filesystem::directory_iterator(dir, ec)) out.insert(e.path().filename());
  return out;
}

// Pids of all monitors whose console lies under `root`: those of this test, whoever their parent is.
inline std::set<pid_t> monitors_of(const std::string& root) {
  std::set<pid_t> out;
  for (const std::string& name : names_in("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    for (const std::string& fd : names_in("/proc/" + name + "/fd")) {
      std::error_code ec;
      const std::string target = std::filesystem::read_symlink("/proc/" + name + "/fd/" + fd, ec);
      if (target.rfind(root + "/state/machines/", 0) == 0) {
        out.insert(std::stoi(name));
        break;
      }
    }
  }
  out.erase(::getpid());
  return out;
}

}  // namespace ramet::host::testing
