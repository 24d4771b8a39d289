// host/testing/host_test.h - the fixture of tests over a whole Host: directories of its own, and at the end no monitor is left.
// Not in the product. Thread: one test.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "base/log.h"
#include "host/context.h"
#include "host/images/images.h"
#include "host/overlay_store.h"
#include "host/registry.h"
#include "host/testing/host_fixture.h"
#include "vmm/control/client.h"

namespace ramet::host::testing {

// tests/guests/lib/protocol.h: a word is kind << 28 | value.
inline constexpr uint32_t kStepOnce = 8u << 28 | 1, kAnswer = 3, kFail = 5;

class HostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access("/dev/kvm", R_OK | W_OK) != 0) GTEST_SKIP() << "no usable /dev/kvm";
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "a monitor built with the thread sanitizer cannot fork";
#endif
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    log_init("host_test", "", LogLevel::kWarn);
    char path[] = "/tmp/ramet-host-XXXXXX";
    root_ = ::mkdtemp(path);
    ASSERT_NO_FATAL_FAILURE(open());
  }
  void TearDown() override {
    if (host_)
      for (const SandboxInfo& s : host_->list()) (void)host_->remove(s.id).has_value();
    host_.reset();
    for (const pid_t pid : monitors_of(root_)) {
      ADD_FAILURE() << "monitor " << pid << " is left";
      ::kill(pid, SIGKILL);
    }
    if (root_.empty()) return;
    const Paths paths{root_ + "/state", root_ + "/run"};
    const OverlayStore overlays(paths);
    if (const Result<std::vector<std::string>> left = overlays.present())
      for (const std::string& id : *left) (void)overlays.remove(id).has_value();  // sealed ones do not go by rm
    std::error_code ec;
    std::filesystem::remove_all(root_, ec);
  }

  void open() {
    Result<std::unique_ptr<Host>> host = Host::open(options_ ? *options_ : tiny_options(root_));
    ASSERT_TRUE(host) << host.error().to_string();
    host_ = std::move(*host);
  }
  SandboxInfo create(const std::string& name = "tiny") {
    CreateOptions o;
    o.template_name = name;
    Result<SandboxInfo> s = host_->create(o);
    EXPECT_TRUE(s) << (s ? "" : s.error().to_string());
    return s ? *s : SandboxInfo{};
  }
  ForkResult fork(const std::string& id, uint32_t count = 1) {
    ForkOptions o;
    o.count = count;
    o.strictness = ForkStrictness::kLoose;
    Result<ForkResult> r = host_->fork(id, o);
    EXPECT_TRUE(r) << (r ? "" : r.error().to_string());
    return r ? std::move(*r) : ForkResult{};
  }
  // Of its monitor.
  pid_t pid_of(const std::string& id) {
    const Result<std::unique_ptr<Registry>> registry = Registry::open(root_ + "/state/ramet.db");
    const Result<std::vector<MachineRow>> rows = (*registry)->machines();
    for (const MachineRow& r : *rows)
      if (r.info.id == id) return static_cast<pid_t>(r.pid);
    return 0;
  }
  SandboxState wait_state(const std::string& id, SandboxState wanted) {
    SandboxState state{};
    for (int i = 0; i < 100; i++) {
      const Result<SandboxInfo> s = host_->get(id);
      state = s ? s->state : SandboxState::kGone;
      if (state == wanted) break;
      std::this_thread::sleep_for(Milliseconds(50));
    }
    return state;
  }
  std::string base_image_of(const std::string& id) { return *(*Registry::open(root_ + "/state/ramet.db"))->base_image(id); }
  // One command of the guest `blk`, by a control connection of our own. Its reads of the base wait, for there is no daemon;
  // then one comes that lives as long as this call. Requires: no host is open.
  uint32_t step(const std::string& id, uint32_t command = kStepOnce) {
    std::atomic<uint32_t> answer{0};
    Result<std::unique_ptr<vmm::control::Client>> client =
        vmm::control::Client::connect(root_ + "/run/vm/" + id + ".sock", [&](const vmm::Event& e) {
          const uint32_t word = e.has_debug_port() ? e.debug_port().value() : 0;
          if (word >> 28 == kAnswer || word >> 28 == kFail) answer = word;
        });
    if (!client) return 0;
    EXPECT_TRUE((*client)->debug_push(std::span(&command, 1), deadline_after(Milliseconds(2000))));
    Images::Options options;
    options.store.directory = root_ + "/state/store";
    options.store.cache_bytes = 64u << 20;
    const std::unique_ptr<Images> images = Images::open(std::move(options)).value();
    const UniqueFd socket = images->server().attach(images->store().use(base_image_id(base_image_of(id))).value()).value();
    vmm::Request attach;
    attach.mutable_attach_base()->set_disk_id("vda");
    attach.mutable_attach_base()->set_chunk_fd(1);
    EXPECT_TRUE((*client)->call(attach, std::array{socket.get()}, deadline_after(Milliseconds(2000))));
    for (int i = 0; i < 200 && answer == 0; i++) std::this_thread::sleep_for(Milliseconds(10));
    EXPECT_EQ(answer >> 28, kAnswer);
    return answer & 0x0fffffff;
  }
  // What the guest `blk` counts, in RAM and on disk.
  uint32_t count(const std::string& id) {
    host_.reset();
    const uint32_t answer = step(id);
    open();
    return answer;
  }
  SnapshotResult snapshot(const std::string& id, const std::string& name = "") {
    SnapshotOptions o;
    o.name = name;
    o.strictness = ForkStrictness::kLoose;
    Result<SnapshotResult> s = host_->snapshot(id, o);
    EXPECT_TRUE(s) << (s ? "" : s.error().to_string());
    return s ? *std::move(s) : SnapshotResult{};
  }
  template <class F>
  static bool eventually(const F& holds) {
    for (int i = 0; i < 200 && !holds(); i++) std::this_thread::sleep_for(Milliseconds(50));
    return holds();
  }
  // Open descriptors of the daemon (this process), once their number stands still: some close in the background, the chunk
  // socket of a dead machine when its hang-up was seen, say. `wanted`: not before there are so many, if that comes.
  static size_t settled_descriptors(std::optional<size_t> wanted = std::nullopt) {
    constexpr int kSteadyLooks = 20;
    size_t seen = names_in("/proc/self/fd").size();
    for (int looks = 0, steady = 0; looks < 200 && (steady < kSteadyLooks || (wanted && seen != *wanted)); looks++) {
      std::this_thread::sleep_for(Milliseconds(50));
      const size_t now = names_in("/proc/self/fd").size();
      steady = now == seen ? steady + 1 : 0;
      seen = now;
    }
    return seen;
  }
  // Overlay files go in the background.
  std::set<std::string> settled_overlays(size_t wanted) {
    std::set<std::string> files;
    for (int i = 0; i < 100; i++) {
      files = names_in(root_ + "/state/overlays");
      if (files.size() == wanted) break;
      std::this_thread::sleep_for(Milliseconds(50));
    }
    return files;
  }

  std::string root_;
  std::optional<HostOptions> options_;
  std::unique_ptr<Host> host_;
};

}  // namespace ramet::host::testing
