#include "cli/template_upload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <memory>
#include <vector>

#include "base/file.h"
#include "cli/directory_archive.h"

namespace ramet::cli {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
// The link is this computer or a virtual one: compressing harder would be the bottleneck.
constexpr int kLevel = 1;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

class CompressedUpload {
 public:
  explicit CompressedUpload(HttpStream& stream) : stream_(stream), context_(ZSTD_createCCtx()), out_(ZSTD_CStreamOutSize()) {
    if (context_) ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kLevel);
  }

  Status write(std::span<const std::byte> plain, ZSTD_EndDirective end) {
    if (!context_) return fail(ErrorKind::kNoMemory, "no memory for a zstd encoder");
    ZSTD_inBuffer in{plain.data(), plain.size(), 0};
    while (true) {
      ZSTD_outBuffer out{out_.data(), out_.size(), 0};
      const size_t left = ZSTD_compressStream2(context_.get(), &out, &in, end);
      if (ZSTD_isError(left)) return fail(ErrorKind::kInternal, std::string("zstd: ") + ZSTD_getErrorName(left));
      TRY(stream_.write(std::span(out_).first(out.pos)));
      if (end == ZSTD_e_end ? left == 0 : in.pos == in.size) return {};
    }
  }

 private:
  HttpStream& stream_;
  std::unique_ptr<ZSTD_CCtx, FreeContext> context_;
  std::vector<std::byte> out_;
};

struct FileSend {
  int fd;
  uint64_t size;
  CompressedUpload& upload;
  const std::function<void(uint64_t)>& progress;
  std::vector<std::byte> piece = std::vector<std::byte>(kPieceBytes);

  Status zeros(uint64_t count) {
    static const std::vector<std::byte> kZeros(kPieceBytes);
    while (count > 0) {
      const size_t n = static_cast<size_t>(std::min<uint64_t>(count, kPieceBytes));
      TRY(upload.write(std::span(kZeros).first(n), ZSTD_e_continue));
      progress(n);
      count -= n;
    }
    return {};
  }
  Status data(uint64_t offset, uint64_t count) {
    while (count > 0) {
      const size_t n = static_cast<size_t>(std::min<uint64_t>(count, kPieceBytes));
      TRY(pread_exact(fd, std::span(piece).first(n), offset));
      TRY(upload.write(std::span(piece).first(n), ZSTD_e_continue));
      progress(n);
      offset += n;
      count -= n;
    }
    return {};
  }
  Status all() {
    uint64_t at = 0;
    while (at < size) {
      const off_t data_at = ::lseek(fd, static_cast<off_t>(at), SEEK_DATA);
      if (data_at < 0 && errno != ENXIO) return data(at, size - at);  // a file system that knows no holes
      const uint64_t begin = data_at < 0 ? size : static_cast<uint64_t>(data_at);
      TRY(zeros(begin - at));
      if (begin == size) break;
      const off_t hole_at = ::lseek(fd, static_cast<off_t>(begin), SEEK_HOLE);
      const uint64_t end = hole_at < 0 ? size : std::min(size, static_cast<uint64_t>(hole_at));
      TRY(data(begin, end - begin));
      at = end;
    }
    return upload.write({}, ZSTD_e_end);
  }
};

Status send_directory(const Upload& what, CompressedUpload& upload) {
  TRY_ASSIGN(DirectoryArchive archive, DirectoryArchive::start(what.path));
  std::vector<std::byte> piece(kPieceBytes);
  while (true) {
    TRY_ASSIGN(const size_t n, archive.read(piece));
    if (n == 0) break;
    TRY(upload.write(std::span(piece).first(n), ZSTD_e_continue));
    what.progress(n);
  }
  TRY(archive.finish());  // before the end of the body: the server must not take a part for the whole
  return upload.write({}, ZSTD_e_end);
}

struct Source {
  UniqueFd fd;
  uint64_t size = 0;
  bool is_directory = false;
};
Result<Source> open_source(const std::string& path) {
  Source source;
  TRY_ASSIGN(source.fd, open_file(path, O_RDONLY));
  struct stat st {};
  if (::fstat(source.fd.get(), &st) < 0) return fail_errno(path);
  source.is_directory = S_ISDIR(st.st_mode);
  source.size = static_cast<uint64_t>(st.st_size);
  return source;
}

}  // namespace

Result<boost::json::value> upload(const ApiClient& api, const Upload& what) {
  TRY_ASSIGN(const Source source, open_source(what.path));
  TRY_ASSIGN(const std::unique_ptr<HttpStream> stream,
             api.open_upload(what.method, what.target, {{"Content-Encoding", "zstd"}}));
  CompressedUpload compressed(*stream);
  const Status sent = source.is_directory ? send_directory(what, compressed)
                                          : FileSend{source.fd.get(), source.size, compressed, what.progress}.all();
  if (!sent && sent.error().kind() != ErrorKind::kUnavailable) return tl::unexpected(sent.error());
  Result<boost::json::value> answer = what.read_answer(*stream);  // says why when the server closed early
  if (!answer || sent) return answer;
  return tl::unexpected(sent.error());
}

Status upload_template_file(const ApiClient& api, const std::string& name, const std::string& file, const std::string& path,
                            const std::function<void(uint64_t)>& progress) {
  TRY(upload(api, {.method = "PUT",
                   .target = "/v1/templates/" + percent_encode(name) + "/files/" + percent_encode(file),
                   .path = path,
                   .progress = progress}));
  return {};
}

}  // namespace ramet::cli
