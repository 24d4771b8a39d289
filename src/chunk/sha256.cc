#include "chunk/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <new>

namespace ramet::chunk {

void Sha256::Free::operator()(evp_md_ctx_st* state) const { EVP_MD_CTX_free(state); }

// It fails as `new` does, for want of memory alone.
Sha256::Sha256() : state_(EVP_MD_CTX_new()) {
  if (!state_ || EVP_DigestInit_ex(state_.get(), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
}

void Sha256::add(std::span<const std::byte> bytes) { EVP_DigestUpdate(state_.get(), bytes.data(), bytes.size()); }

Digest Sha256::end() {
  unsigned char raw[EVP_MAX_MD_SIZE];
  EVP_DigestFinal_ex(state_.get(), raw, nullptr);
  Digest out;
  std::ranges::transform(std::span(raw).first(out.bytes.size()), out.bytes.begin(),
                         [](unsigned char c) { return std::byte{c}; });
  return out;
}

}  // namespace ramet::chunk
