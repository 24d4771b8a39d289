#include "api/testing/fake_host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <boost/json.hpp>

#include "base/file.h"

namespace ramet::api::testing {
namespace {

namespace fs = std::filesystem;

class FakeExecStream final : public host::ExecStream {
 public:
  FakeExecStream(std::shared_ptr<FakeProcess> process, bool detach, uint64_t out, uint64_t err)
      : process_(std::move(process)), detach_(detach), out_(out), err_(err) {}

  Result<std::optional<host::ExecEvent>> next(Deadline deadline) override {
    using Kind = host::ExecEvent::Kind;
    std::unique_lock lock(process_->mutex);
    host::ExecEvent event;
    if (!started_) {
      started_ = true;
      event.pid = process_->pid;
      return event;
    }
    if (ended_ || detach_) return std::nullopt;
    while (true) {
      if (cancelled_) return fail(ErrorKind::kCancelled, "the stream was cancelled");
      if (take(process_->out, &out_, Kind::kStdout, &event) || take(process_->err, &err_, Kind::kStderr, &event)) return event;
      if (process_->exit) {
        ended_ = true;
        event.kind = Kind::kExit;
        event.exit = *process_->exit;
        return event;
      }
      if (process_->changed.wait_until(lock, deadline) == std::cv_status::timeout) return fail(ErrorKind::kTimeout, "no event");
    }
  }
  Status write_stdin(std::string_view data, Deadline) override { return process_->write_stdin(data, false); }
  Status close_stdin() override { return process_->write_stdin("", true); }
  Status send_signal(uint32_t signal) override { return process_->send_signal(signal); }
  Status resize(host::WindowSize size) override { return process_->resize(size); }
  void cancel() override {
    const std::lock_guard lock(process_->mutex);
    cancelled_ = true;
    process_->changed.notify_all();
  }

 private:
  static bool take(const std::string& from, uint64_t* at, host::ExecEvent::Kind kind, host::ExecEvent* event) {
    constexpr size_t kMaxPiece = 64 * 1024;
    if (*at >= from.size()) return false;
    event->kind = kind;
    event->offset = *at;
    event->data = from.substr(*at, kMaxPiece);
    *at += event->data.size();
    return true;
  }

  const std::shared_ptr<FakeProcess> process_;
  const bool detach_;
  uint64_t out_, err_;
  bool started_ = false, ended_ = false, cancelled_ = false;
};

class FakeReader final : public host::FileReader {
 public:
  FakeReader(UniqueFd fd, uint64_t left) : fd_(std::move(fd)), left_(left) {}
  Result<std::optional<std::string>> next(Deadline) override {
    std::string piece(std::min<uint64_t>(left_, 64 * 1024), '\0');
    const ssize_t n = ::read(fd_.get(), piece.data(), piece.size());
    if (n < 0) return fail_errno("read");
    if (n == 0) return std::nullopt;
    piece.resize(static_cast<size_t>(n));
    left_ -= piece.size();
    return piece;
  }
  void cancel() override {}

 private:
  const UniqueFd fd_;
  uint64_t left_;
};

Result<host::FileInfo> look_at(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return fail_errno(path);
  host::FileInfo i;
  i.path = path;
  i.type = S_ISREG(st.st_mode)   ? host::FileType::kRegular
           : S_ISDIR(st.st_mode) ? host::FileType::kDirectory
           : S_ISLNK(st.st_mode) ? host::FileType::kSymlink
                                 : host::FileType::kOther;
  i.size_bytes = static_cast<uint64_t>(st.st_size);
  i.mode = st.st_mode & 07777;
  i.uid = st.st_uid;
  i.gid = st.st_gid;
  i.user = "user";
  i.group = "user";
  i.mtime_ns = st.st_mtim.tv_sec * 1'000'000'000LL + st.st_mtim.tv_nsec;
  if (i.type == host::FileType::kSymlink) i.symlink_target = fs::read_symlink(path);
  return i;
}

class FakeWriter final : public host::FileWriter {
 public:
  FakeWriter(UniqueFd fd, std::string part, std::string path, uint32_t mode, std::atomic<int>& writes)
      : fd_(std::move(fd)), part_(std::move(part)), path_(std::move(path)), mode_(mode), writes_(writes) {}
  ~FakeWriter() override { ::unlink(part_.c_str()); }
  Status write(std::span<const std::byte> data, Deadline) override {
    writes_++;
    return write_all(fd_.get(), data);
  }
  Result<host::FileInfo> finish(Deadline) override {
    ::fchmod(fd_.get(), mode_ == 0 ? 0644 : mode_);
    if (::rename(part_.c_str(), path_.c_str()) != 0) return fail_errno(path_);
    return look_at(path_);
  }
  void cancel() override {}

 private:
  const UniqueFd fd_;
  const std::string part_, path_;
  const uint32_t mode_;
  std::atomic<int>& writes_;
};

}  // namespace

class FakeUpload final : public host::TemplateFileWriter {
 public:
  FakeUpload(FakeHost& host, std::string name, std::string file)
      : host_(host), name_(std::move(name)), file_(std::move(file)) {}
  Status write(std::span<const std::byte> data) override {
    bytes_.append(reinterpret_cast<const char*>(data.data()), data.size());
    return {};
  }
  Result<host::TemplateFile> finish() override {
    const std::lock_guard lock(host_.mutex_);
    const uint64_t size = bytes_.size();
    host_.uploads_[name_ + "/" + file_] = std::move(bytes_);
    return host::TemplateFile{file_, size, std::string(64, '0')};
  }

 private:
  FakeHost& host_;
  const std::string name_, file_;
  std::string bytes_;
};

FakeHost::~FakeHost() {
  images_.reset();
  std::error_code error;
  std::filesystem::remove_all(store_directory_, error);
}

FakeHost::FakeHost() {
  store_directory_ = std::filesystem::temp_directory_path() / "ramet-fake-store-XXXXXX";
  if (::mkdtemp(store_directory_.data()) == nullptr) throw std::runtime_error("no temporary directory");
  host::Images::Options images;
  images.store.directory = store_directory_;
  images.store.cache_bytes = 64u << 20;
  images_ = host::Images::open(std::move(images)).value();
  for (const char* name : {"base", "full", "slow", "stuck"}) {
    host::TemplateInfo t;
    t.name = name;
    t.digest = std::string(64, 'd');
    t.kernel_release = "6.12.0-test";
    t.vcpus = 1;
    t.memory_mib = 512;
    t.disk_bytes = 1 << 30;
    t.files = {
        {"vmlinux", 1, std::string(64, 'a')}, {"initrd", 2, std::string(64, 'b')}, {"disk.img", 3, std::string(64, 'c')}};
    t.committed_at_ns = wall_ns();
    t.status = "ready";
    t.started_from = "store";
    templates_.push_back(t);
  }
}

Status FakeHost::check(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (boxes_.contains(id)) return {};
  return fail(ErrorKind::kNotFound, "there is no sandbox `" + id + "`");
}

host::SandboxInfo FakeHost::add_box(host::SandboxInfo info) {
  char id[20];
  snprintf(id, sizeof id, "%llxe1d2c3b4a", static_cast<unsigned long long>(next_id_));
  next_id_ += 0x1100;
  info.id = id;
  if (info.family_id.empty()) info.family_id = id;
  info.state = host::SandboxState::kRunning;
  info.created_at_ns = wall_ns();
  info.timing = {12.5, 3.25, 8.125, 0};
  boxes_[id] = Box{info, "[    0.000000] Linux version 6.12.0-test\nramet-guest: ready\n", {}};
  return info;
}

Result<host::SandboxInfo> FakeHost::create(const host::CreateOptions& o) {
  if (o.template_name == "slow") ::usleep(300'000);
  if (o.template_name == "full")
    return tl::unexpected(Error(ErrorKind::kNoMemory, "the sandbox needs 512 MiB, 100 MiB are free").with_hint("End some."));
  const std::lock_guard lock(mutex_);
  creates++;
  if (!o.snapshot.empty()) {
    const auto from =
        std::ranges::find_if(snapshots_, [&](const auto& s) { return s.id == o.snapshot || s.name == o.snapshot; });
    if (from == snapshots_.end()) return fail(ErrorKind::kNotFound, "there is no snapshot `" + o.snapshot + "`");
    host::SandboxInfo info;
    info.template_name = from->template_name;
    info.vcpus = from->vcpus;
    info.memory_mib = from->memory_mib;
    return add_box(std::move(info));
  }
  const auto found = std::find_if(templates_.begin(), templates_.end(),
                                  [&](const host::TemplateInfo& t) { return t.name == o.template_name; });
  if (found == templates_.end()) return fail(ErrorKind::kNotFound, "there is no template `" + o.template_name + "`");
  host::SandboxInfo info;
  info.template_name = o.template_name;
  info.vcpus = o.vcpus.value_or(found->vcpus);
  info.memory_mib = o.memory_mib.value_or(found->memory_mib);
  info.disk_bytes = found->disk_bytes;
  info.labels = o.labels;
  info.env = o.env;
  info.idle_seconds = o.idle_seconds;
  if (o.ttl_seconds.value_or(0) > 0) info.expires_at_ns = wall_ns() + static_cast<int64_t>(*o.ttl_seconds) * 1'000'000'000;
  return add_box(std::move(info));
}

std::vector<host::SandboxInfo> FakeHost::list() {
  const std::lock_guard lock(mutex_);
  std::vector<host::SandboxInfo> out;
  for (const auto& [id, box] : boxes_) out.push_back(box.info);
  return out;
}

Result<host::SandboxInfo> FakeHost::get(const std::string& id) {
  TRY(check(id));
  const std::lock_guard lock(mutex_);
  return boxes_[id].info;
}

Result<host::SandboxInfo> FakeHost::patch(const std::string& id, const host::PatchOptions& o) {
  TRY(check(id));
  const std::lock_guard lock(mutex_);
  host::SandboxInfo& info = boxes_[id].info;
  if (o.labels) info.labels = *o.labels;
  info.idle_seconds = o.idle_seconds.value_or(info.idle_seconds);
  if (o.ttl_seconds) info.expires_at_ns.reset();
  if (o.ttl_seconds.value_or(0) > 0) info.expires_at_ns = wall_ns() + static_cast<int64_t>(*o.ttl_seconds) * 1'000'000'000;
  return info;
}

Status FakeHost::remove(const std::string& id) {
  TRY(check(id));
  Box gone;
  const std::lock_guard lock(mutex_);
  gone = std::move(boxes_[id]);
  boxes_.erase(id);
  return {};
}

Result<host::SandboxInfo> FakeHost::change_state(const std::string& id, host::SandboxState from, host::SandboxState to) {
  TRY(check(id));
  const std::lock_guard lock(mutex_);
  host::SandboxInfo& info = boxes_[id].info;
  if (info.state != from) return fail(ErrorKind::kConflict, "sandbox `" + id + "` is " + host::state_name(info.state));
  info.state = to;
  return info;
}

Result<host::SandboxInfo> FakeHost::pause(const std::string& id) {
  return change_state(id, host::SandboxState::kRunning, host::SandboxState::kPaused);
}

Result<host::SandboxInfo> FakeHost::resume(const std::string& id) {
  return change_state(id, host::SandboxState::kPaused, host::SandboxState::kRunning);
}

Result<host::SandboxInfo> FakeHost::rollback(const std::string& id, const std::string& snapshot) {
  TRY(check(id));
  TRY_ASSIGN(const host::SnapshotInfo to, get_snapshot(snapshot));
  const std::lock_guard lock(mutex_);
  host::SandboxInfo& info = boxes_[id].info;
  if (to.memory_mib != info.memory_mib) return fail(ErrorKind::kInvalid, "the snapshot has another size");
  info.state = host::SandboxState::kRunning;
  return info;
}

Result<host::SnapshotResult> FakeHost::snapshot(const std::string& id, const host::SnapshotOptions& o) {
  TRY_ASSIGN(const host::SandboxInfo box, get(id));
  if (get_snapshot(o.name)) return fail(ErrorKind::kExists, "there is a snapshot `" + o.name + "` already");
  const std::lock_guard lock(mutex_);
  host::SnapshotResult made;
  made.info.id = "sn-" + std::to_string(snapshots_made_++);
  made.info.name = o.name;
  made.info.sandbox_id = id;
  made.info.template_name = box.template_name;
  made.info.cpu_model = "a processor";
  made.info.strict = o.strictness == host::ForkStrictness::kStrict;
  made.info.created_at_ns = wall_ns();
  if (o.keep_seconds.value_or(1) != 0) made.info.expires_at_ns = wall_ns() + 1'000'000'000;
  made.info.vcpus = box.vcpus;
  made.info.memory_mib = box.memory_mib;
  made.info.disk_bytes = box.disk_bytes;
  made.info.labels = o.labels;
  made.timing = {1.5, 0.5, 2.5, 100};
  made.changed_pages = 300;
  made.memory_chunks = 40;
  made.disk_chunks = 2;
  snapshots_.push_back(made.info);
  return made;
}

Result<std::vector<host::SnapshotInfo>> FakeHost::snapshots() {
  const std::lock_guard lock(mutex_);
  return snapshots_;
}

Result<host::SnapshotInfo> FakeHost::get_snapshot(const std::string& id) {
  const std::lock_guard lock(mutex_);
  for (const host::SnapshotInfo& s : snapshots_)
    if (!id.empty() && (s.id == id || s.name == id)) return s;
  return fail(ErrorKind::kNotFound, "there is no snapshot `" + id + "`");
}

Result<host::SnapshotInfo> FakeHost::patch_snapshot(const std::string& id, const host::SnapshotPatch& patch) {
  TRY_ASSIGN(const host::SnapshotInfo found, get_snapshot(id));
  const std::lock_guard lock(mutex_);
  for (host::SnapshotInfo& s : snapshots_) {
    if (s.id != found.id) continue;
    if (patch.name) s.name = *patch.name;
    if (patch.labels) s.labels = *patch.labels;
    if (patch.keep_seconds) s.expires_at_ns.reset();
    return s;
  }
  return found;
}

Status FakeHost::remove_snapshot(const std::string& id) {
  TRY_ASSIGN(const host::SnapshotInfo found, get_snapshot(id));
  const std::lock_guard lock(mutex_);
  std::erase_if(snapshots_, [&](const host::SnapshotInfo& s) { return s.id == found.id; });
  return {};
}

Result<host::CommittedDisk> FakeHost::commit_disk(const std::string& id, const std::string& name) {
  TRY_ASSIGN(const host::SandboxInfo box, get(id));
  TRY_ASSIGN(const std::unique_ptr<host::ImageUpload> upload, images_->upload(name));
  TRY(upload->write(as_bytes(id)));
  TRY(upload->finish({}));
  host::CommittedDisk disk;
  TRY_ASSIGN(disk.image, images_->get(name));
  disk.clean = box.template_name != "stuck";
  if (!disk.clean) disk.why_not_clean = "the file system could not be frozen before the deadline";
  disk.frozen_ms = 1.5;
  return disk;
}

Result<host::ForkResult> FakeHost::fork(const std::string& id, const host::ForkOptions& o) {
  TRY(check(id));
  const std::lock_guard lock(mutex_);
  const host::SandboxInfo parent = boxes_[id].info;
  if (parent.template_name == "stuck" && o.strictness == host::ForkStrictness::kStrict)
    return fail(ErrorKind::kNotQuiescent, "2 tasks did not stand still within 500 ms");
  host::ForkResult result;
  const bool fails = o.labels && o.labels->contains("fail");
  const uint32_t failing = fails ? static_cast<uint32_t>(std::stoul(o.labels->at("fail"))) : o.count;
  if (failing < o.count && o.mode == host::ForkMode::kAll)
    return fail(ErrorKind::kNoMemory, "child " + std::to_string(failing) + " does not fit");
  for (uint32_t i = 0; i < o.count; i++) {
    if (i == failing) {
      result.failed.push_back({i, Error(ErrorKind::kNoMemory, "child " + std::to_string(i) + " does not fit")});
      continue;
    }
    host::SandboxInfo child = parent;
    child.parent_id = id;
    child.depth++;
    if (o.labels) child.labels = *o.labels;
    result.children.push_back(add_box(std::move(child)));
    result.timing.ready_ms.push_back(20.5 + i);
  }
  result.timing.freeze_ms = 0.8;
  result.timing.vcpu_stop_ms = 1.9;
  result.timing.parent_pause_ms = 4.5;
  result.timing.fork_ms = 5.75;
  return result;
}

std::vector<host::TreeNode> FakeHost::tree() {
  const std::lock_guard lock(mutex_);
  const std::function<host::TreeNode(const Box&)> node_of = [&](const Box& box) {
    host::TreeNode node{box.info, 3 << 20, 1 << 20, 2 << 20, 40960, {}};
    for (const auto& [id, other] : boxes_)
      if (other.info.parent_id == box.info.id) node.children.push_back(node_of(other));
    return node;
  };
  std::vector<host::TreeNode> roots;
  for (const auto& [id, box] : boxes_)
    if (!box.info.parent_id || !boxes_.contains(*box.info.parent_id)) roots.push_back(node_of(box));
  return roots;
}

Result<std::string> FakeHost::logs(const std::string& id, uint64_t) {
  TRY(check(id));
  const std::lock_guard lock(mutex_);
  return boxes_[id].console;
}

Result<std::unique_ptr<host::ExecStream>> FakeHost::exec(const std::string& id, const host::ExecOptions& o) {
  TRY(check(id));
  TRY_ASSIGN(const std::shared_ptr<FakeProcess> process, FakeProcess::start(o));
  const std::lock_guard lock(mutex_);
  boxes_[id].processes[process->pid] = process;
  return std::make_unique<FakeExecStream>(process, o.detach, 0, 0);
}

Result<std::vector<host::ProcessInfo>> FakeHost::processes(const std::string& id) {
  TRY(check(id));
  const std::lock_guard lock(mutex_);
  std::vector<host::ProcessInfo> out;
  for (const auto& [pid, process] : boxes_[id].processes) out.push_back(process->info());
  return out;
}

Result<std::shared_ptr<FakeProcess>> FakeHost::process(const std::string& id, uint32_t pid) {
  TRY(check(id));
  const std::lock_guard lock(mutex_);
  const auto found = boxes_[id].processes.find(pid);
  if (found == boxes_[id].processes.end()) return fail(ErrorKind::kNotFound, "there is no process " + std::to_string(pid));
  return found->second;
}

Result<std::unique_ptr<host::ExecStream>> FakeHost::attach(const std::string& id, uint32_t pid, uint64_t out, uint64_t err) {
  TRY_ASSIGN(std::shared_ptr<FakeProcess> p, process(id, pid));
  return std::make_unique<FakeExecStream>(std::move(p), false, out, err);
}
Status FakeHost::write_stdin(const std::string& id, uint32_t pid, std::string_view data, bool eof, Deadline) {
  TRY_ASSIGN(const std::shared_ptr<FakeProcess> p, process(id, pid));
  return p->write_stdin(data, eof);
}
Status FakeHost::send_signal(const std::string& id, uint32_t pid, uint32_t signal) {
  TRY_ASSIGN(const std::shared_ptr<FakeProcess> p, process(id, pid));
  return p->send_signal(signal);
}
Status FakeHost::resize(const std::string& id, uint32_t pid, host::WindowSize size) {
  TRY_ASSIGN(const std::shared_ptr<FakeProcess> p, process(id, pid));
  return p->resize(size);
}

Result<std::unique_ptr<host::FileReader>> FakeHost::read_file(const std::string& id, const std::string& path,
                                                              const host::ReadOptions& o) {
  TRY(check(id));
  TRY_ASSIGN(UniqueFd fd, open_file(path, O_RDONLY));
  ::lseek(fd.get(), static_cast<off_t>(o.offset), SEEK_SET);
  return std::make_unique<FakeReader>(std::move(fd), o.length == 0 ? UINT64_MAX : o.length);
}
Result<std::unique_ptr<host::FileWriter>> FakeHost::write_file(const std::string& id, const std::string& path,
                                                               const host::WriteOptions& o) {
  TRY(check(id));
  if (o.create_parents) TRY(make_directories(fs::path(path).parent_path()));
  const std::string part = path + ".part";
  TRY_ASSIGN(UniqueFd fd, open_file(part, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  return std::make_unique<FakeWriter>(std::move(fd), part, path, o.permissions, file_writes);
}
Result<std::vector<host::FileInfo>> FakeHost::list_files(const std::string& id, const std::string& path, uint32_t,
                                                         const std::string&) {
  TRY(check(id));
  std::error_code ec;
  std::vector<host::FileInfo> out;
  for (const fs::directory_entry& e : fs::directory_iterator(path, ec)) {
    TRY_ASSIGN(host::FileInfo info, look_at(e.path()));
    out.push_back(std::move(info));
  }
  if (ec) return fail_errno(path, ec.value());
  return out;
}
Result<host::FileInfo> FakeHost::stat_file(const std::string& id, const std::string& path, const std::string&) {
  TRY(check(id));
  return look_at(path);
}
Status FakeHost::make_dir(const std::string& id, const std::string& path, bool parents, uint32_t permissions,
                          const std::string&) {
  TRY(check(id));
  if (parents) return make_directories(path, permissions);
  if (::mkdir(path.c_str(), permissions) != 0) return fail_errno(path);
  return {};
}
Status FakeHost::move_file(const std::string& id, const std::string& from, const std::string& to, const std::string&) {
  TRY(check(id));
  if (::rename(from.c_str(), to.c_str()) != 0) return fail_errno(from);
  return {};
}
Status FakeHost::remove_file(const std::string& id, const std::string& path, bool recursive, const std::string&) {
  TRY(check(id));
  std::error_code ec;
  if (recursive ? fs::remove_all(path, ec) > 0 : fs::remove(path, ec)) return {};
  return fail_errno(path, ec ? ec.value() : ENOENT);
}

std::vector<host::TemplateInfo> FakeHost::templates() {
  const std::lock_guard lock(mutex_);
  return templates_;
}
Result<std::unique_ptr<host::TemplateFileWriter>> FakeHost::upload_template_file(const std::string& name,
                                                                                 const std::string& file) {
  if (file != "vmlinux" && file != "initrd" && file != "disk.img")
    return fail(ErrorKind::kInvalid, "a template has no file `" + file + "`");
  return std::make_unique<FakeUpload>(*this, name, file);
}
Result<host::TemplateInfo> FakeHost::commit_template(const std::string& name, std::string_view text) {
  const boost::json::value document = boost::json::parse(text);
  const std::lock_guard lock(mutex_);
  host::TemplateInfo t = templates_.front();
  t.name = name;
  t.files.clear();
  for (const boost::json::key_value_pair& f : document.at("files").as_object()) {
    if (!uploads_.contains(name + "/" + std::string(f.key())))
      return fail(ErrorKind::kConflict, "file `" + std::string(f.key()) + "` was not uploaded");
    t.files.push_back({f.key(), f.value().at("bytes").to_number<uint64_t>(), std::string(f.value().at("sha256").as_string())});
  }
  t.memory_mib = document.at("memory_mib").to_number<uint64_t>();
  t.vcpus = document.at("vcpus").to_number<uint32_t>();
  std::erase_if(templates_, [&](const host::TemplateInfo& o) { return o.name == name; });
  templates_.push_back(t);
  return t;
}
Result<host::TemplateInfo> FakeHost::save_template(const std::string& name, const host::SaveTemplateOptions& o) {
  TRY_ASSIGN(const host::SnapshotInfo from, get_snapshot(o.snapshot));
  const std::lock_guard lock(mutex_);
  host::TemplateInfo t = templates_.front();
  t.name = name;
  t.digest = from.id;
  t.files.clear();
  t.saved = from.id;
  t.env = o.env;
  t.committed_at_ns = wall_ns();
  std::erase_if(templates_, [&](const host::TemplateInfo& other) { return other.name == name; });
  templates_.push_back(t);
  return t;
}
Status FakeHost::remove_template(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (std::erase_if(templates_, [&](const host::TemplateInfo& t) { return t.name == name; }) > 0) return {};
  return fail(ErrorKind::kNotFound, "there is no template `" + name + "`");
}

std::map<std::string, std::string> FakeHost::uploads() {
  const std::lock_guard lock(mutex_);
  return uploads_;
}

host::HostReport FakeHost::report() {
  host::HostReport r;
  r.version = "0-test";
  r.kernel = "6.12.0-test";
  r.cpus = 2;
  r.kvm = {true, "a loop iteration took 1.1 ns"};
  r.cgroup = {true, "/sys/fs/cgroup", {"cpu", "memory"}};
  r.memory_total_bytes = 8ull << 30;
  r.warnings = {"this is a fake"};
  return r;
}

}  // namespace ramet::api::testing
