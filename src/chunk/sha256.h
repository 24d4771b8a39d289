// chunk/sha256.h - the SHA-256 of bytes that come piece by piece, as other formats want it. Never a name of ours: those are of
// chunk/digest.h. Thread: one at a time. Source: OpenSSL.
#pragma once

#include <memory>
#include <span>

#include "base/digest.h"

struct evp_md_ctx_st;

namespace ramet::chunk {

class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  // Of all of them.   Requires: asked once, and nothing is added any more.
  Digest end();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* state) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> state_;
};

}  // namespace ramet::chunk
