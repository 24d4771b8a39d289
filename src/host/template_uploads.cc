#include "host/template_uploads.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/all_zero.h"
#include "base/file.h"
#include "base/log.h"
#include "chunk/digest.h"
#include "chunk/sha256.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

constexpr size_t kBlock = 4096;
constexpr uint64_t kAdmitBytes = 16u << 20;  // asked for at the start and after so many

// Writes "path.up-ID", becomes "path" (with "path.sha256" beside it) in finish().
class UploadWriter final : public TemplateFileWriter {
 public:
  UploadWriter(std::string name, std::string path, UniqueFd fd, std::string part, const TemplateUploads::Admit& admit,
               std::shared_ptr<TemplateUploads::Use> use)
      : use_(std::move(use)),
        name_(std::move(name)),
        path_(std::move(path)),
        part_(std::move(part)),
        fd_(std::move(fd)),
        admit_(admit) {}
  ~UploadWriter() override {
    if (!part_.empty()) ::unlink(part_.c_str());
  }

  Status write(std::span<const std::byte> data) override {
    TRY(check_room(data.size()));
    sha_.add(data);
    while (!data.empty()) {
      // Whole zero blocks are left out: the file stays as sparse as its source was.
      const size_t in_block = kBlock - bytes_ % kBlock;
      size_t n = std::min(in_block, data.size());
      if (all_zero(data.first(n))) {
        bytes_ += n;
        data = data.subspan(n);
        continue;
      }
      while (n < data.size() && n < (1u << 20) && !all_zero(data.subspan(n, std::min(kBlock, data.size() - n))))
        n += std::min(kBlock, data.size() - n);
      TRY(pwrite_all(fd_.get(), data.first(n), bytes_));
      bytes_ += n;
      data = data.subspan(n);
    }
    return {};
  }

  Result<TemplateFile> finish() override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(bytes_)) < 0) return fail_errno("size of " + name_);
    if (::fsync(fd_.get()) < 0) return fail_errno("sync " + name_);
    TemplateFile f{name_, bytes_, sha_.end().to_hex()};
    TRY(replace_file(path_ + ".sha256", f.sha256));
    if (::rename(part_.c_str(), path_.c_str()) < 0) return fail_errno("finish upload of " + name_);
    part_.clear();
    return f;
  }

 private:
  Status check_room(size_t more) {
    since_check_ += more;
    if (since_check_ < kAdmitBytes) return {};
    since_check_ = 0;
    return admit_(kAdmitBytes);
  }
  const std::shared_ptr<TemplateUploads::Use> use_;
  std::string name_, path_, part_;
  UniqueFd fd_;
  const TemplateUploads::Admit& admit_;
  chunk::Sha256 sha_;
  uint64_t bytes_ = 0;
  uint64_t since_check_ = 0;
};

}  // namespace

TemplateUploads::TemplateUploads(const Paths& paths, Admit admit, Limits limits)
    : paths_(paths), admit_(std::move(admit)), limits_(limits) {}

Result<std::unique_ptr<TemplateFileWriter>> TemplateUploads::write(const std::string& name, const std::string& file) {
  TRY_ASSIGN(std::shared_ptr<Use> held, use(name));
  TRY(admit_(kAdmitBytes));
  TRY(make_directories(directory(name), 0700));
  const std::string path = directory(name) + "/" + file;
  const std::string part = path + "." + new_id("up");
  TRY_ASSIGN(UniqueFd fd, open_file(part, O_RDWR | O_CREAT | O_EXCL, 0600));
  return std::make_unique<UploadWriter>(file, path, std::move(fd), part, admit_, std::move(held));
}

Result<std::shared_ptr<TemplateUploads::Use>> TemplateUploads::use(const std::string& name) {
  const std::lock_guard lock(mutex_);
  auto it = uploads_.find(name);
  if (it != uploads_.end() && it->second.users == 0 && MonotonicClock::now() - it->second.last_used >= limits_.idle) {
    remove(it);  // its time was over: what comes now is another one
    it = uploads_.end();
  }
  if (it == uploads_.end()) {
    TRY(make_room_for_one());
    it = uploads_.emplace(name, Upload{}).first;
  }
  it->second.users++;
  return std::make_shared<Use>(*this, name);
}

void TemplateUploads::leave(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Upload& upload = uploads_[name];
  upload.users--;
  upload.last_used = MonotonicClock::now();
  std::error_code none;  // where there is no directory there is nothing
  if (upload.users == 0 && std::filesystem::is_empty(directory(name), none)) ::rmdir(directory(name).c_str());
  if (upload.users == 0 && !std::filesystem::exists(directory(name), none)) uploads_.erase(name);  // committed, or nothing came
}

Status TemplateUploads::make_room_for_one() {
  if (uploads_.size() < limits_.uploads) return {};
  auto oldest = uploads_.end();
  for (auto it = uploads_.begin(); it != uploads_.end(); ++it)
    if (it->second.users == 0 && (oldest == uploads_.end() || it->second.last_used < oldest->second.last_used)) oldest = it;
  if (oldest == uploads_.end())
    return fail(ErrorKind::kConflict, std::to_string(uploads_.size()) + " templates are being uploaded, more than " +
                                          std::to_string(limits_.uploads) + " at a time cannot be");
  remove(oldest);
  return {};
}

bool TemplateUploads::give_up(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto it = uploads_.find(name);
  if (it == uploads_.end() || it->second.users != 0) return false;
  remove(it);
  return true;
}

void TemplateUploads::drop_old() {
  const std::lock_guard lock(mutex_);
  const Deadline now = MonotonicClock::now();
  for (auto it = uploads_.begin(); it != uploads_.end();) {
    const auto here = it++;
    if (here->second.users == 0 && now - here->second.last_used >= limits_.idle) remove(here);
  }
}

void TemplateUploads::remove(Table::iterator upload) {
  std::error_code failed;
  std::filesystem::remove_all(directory(upload->first), failed);
  log_info("the upload of template '" + upload->first + "' was never committed and is dropped" +
           (failed ? ", but its files stay: " + failed.message() : ""));
  uploads_.erase(upload);
}

void TemplateUploads::sweep() const {
  std::error_code ec;
  for (const auto& e : std::filesystem::directory_iterator(paths_.templates(), ec))
    if (e.path().filename().string().rfind(".upload-", 0) == 0) std::filesystem::remove_all(e.path(), ec);
}

}  // namespace ramet::host
