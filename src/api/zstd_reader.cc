#include "api/zstd_reader.h"

#include <zstd.h>

namespace ramet::api {

void ZstdReader::Free::operator()(ZSTD_DCtx_s* context) const { ZSTD_freeDCtx(context); }

ZstdReader::ZstdReader() : context_(ZSTD_createDCtx()), out_(ZSTD_DStreamOutSize()) {
  constexpr int kMaxWindowLog = 26;
  if (context_) ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
}
ZstdReader::~ZstdReader() = default;

Result<ZstdReader::Step> ZstdReader::decode_some(std::span<const std::byte>* piece) {
  if (!context_) return fail(ErrorKind::kNoMemory, "no memory for a zstd decoder");
  ZSTD_inBuffer in{piece->data(), piece->size(), 0};
  ZSTD_outBuffer out{out_.data(), out_.size(), 0};
  const size_t left = ZSTD_decompressStream(context_.get(), &out, &in);
  if (ZSTD_isError(left))
    return fail(ErrorKind::kInvalid, std::string("the body is not valid zstd: ") + ZSTD_getErrorName(left));
  *piece = piece->subspan(in.pos);
  frame_open_ = left != 0;
  return Step{std::span<const std::byte>(out_).first(out.pos), out.pos == out.size};
}

Status ZstdReader::finish() const {
  if (frame_open_) return fail(ErrorKind::kInvalid, "the zstd body ends in the middle of a frame");
  return {};
}

}  // namespace ramet::api
