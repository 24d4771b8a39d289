// api/zstd_reader.h - a zstd stream -> plain bytes with bounded memory, piece by piece. Not here: compression (cli/).
// Thread: one. Owns: the decoder.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

struct ZSTD_DCtx_s;

namespace ramet::api {

class ZstdReader {
 public:
  ZstdReader();
  ~ZstdReader();

  // Decodes a piece and gives the plain bytes, at most 128 KiB at a time, to `sink` (Status(std::span<const std::byte>)).
  // Errors: kInvalid (not zstd, window above 64 MiB), kNoMemory, what the sink returns.
  template <class Sink>
  Status decode(std::span<const std::byte> piece, Sink sink) {
    while (true) {
      TRY_ASSIGN(const Step step, decode_some(&piece));
      if (!step.plain.empty()) TRY(sink(step.plain));
      if (piece.empty() && !step.more) return {};
    }
  }
  // Errors: kInvalid (the stream was cut).
  Status finish() const;

 private:
  struct Step {
    std::span<const std::byte> plain;
    bool more = false;  // the decoder holds bytes that did not fit
  };
  Result<Step> decode_some(std::span<const std::byte>* piece);

  struct Free {
    void operator()(ZSTD_DCtx_s* context) const;
  };
  std::unique_ptr<ZSTD_DCtx_s, Free> context_;
  std::vector<std::byte> out_;
  bool frame_open_ = false;
};

}  // namespace ramet::api
