#include "chunk/side_by_side.h"

#define NO_COMPAT_IMB_API_053  // old names, which OpenSSL has too
#include <intel-ipsec-mb.h>

#include "base/all_zero.h"
#include "chunk/digest.h"
#include "chunk/recipe.h"

namespace ramet::chunk {
namespace {

void describe(IMB_JOB& job, std::span<const std::byte> block, Digest& to) {
  job = {};
  job.cipher_mode = IMB_CIPHER_NULL;
  job.cipher_direction = IMB_DIR_ENCRYPT;
  job.chain_order = IMB_ORDER_HASH_CIPHER;
  job.hash_alg = IMB_AUTH_SHA_256;
  job.src = reinterpret_cast<const uint8_t*>(block.data());
  job.msg_len_to_hash_in_bytes = block.size();
  job.auth_tag_output = reinterpret_cast<uint8_t*>(to.bytes.data());
  job.auth_tag_output_len_in_bytes = to.bytes.size();
}

}  // namespace

void SideBySide::Free::operator()(IMB_MGR* m) const { ::free_mb_mgr(m); }

SideBySide::SideBySide() : manager_(::alloc_mb_mgr(0)) {
  if (!manager_) return;
  ::init_mb_mgr_auto(manager_.get(), nullptr);
  if (::imb_get_errno(manager_.get()) != 0) manager_.reset();
}
SideBySide::~SideBySide() = default;

bool SideBySide::digests(std::span<const std::byte> blocks, std::span<Digest> out) {
  IMB_MGR* const m = manager_.get();
  if (!m) return false;
  if (out.empty()) return true;
  // Not side by side: an emulated processor (QEMU 10.0) reads 16 bytes behind what VINSERTI128 names, where memory may end.
  out.back() = block_digest(blocks.last(kBlockBytes));
  size_t missing = 0;
  const auto count = [&](const IMB_JOB* done) { missing -= done->status == IMB_STATUS_COMPLETED; };
  for (size_t i = 0; i + 1 < out.size(); i++) {
    const std::span<const std::byte> block = blocks.subspan(i * kBlockBytes, kBlockBytes);
    if (all_zero(block)) {
      out[i] = kZeroBlockDigest;
      continue;
    }
    describe(*IMB_GET_NEXT_JOB(m), block, out[i]);
    missing++;
    for (const IMB_JOB* done = IMB_SUBMIT_JOB(m); done; done = IMB_GET_COMPLETED_JOB(m)) count(done);
  }
  while (const IMB_JOB* const done = IMB_FLUSH_JOB(m)) count(done);
  return missing == 0;
}

}  // namespace ramet::chunk
