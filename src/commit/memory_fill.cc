#include "commit/memory_fill.h"

#include <sys/stat.h>

#include <thread>

#include "commit/demand_fill.h"
#include "commit/in_order.h"

namespace ramet::commit {
namespace {

Status check_empty(int file) {
  struct stat st;
  if (::fstat(file, &st) < 0) return fail_errno("size of a memory file");
  if (st.st_blocks == 0) return {};
  return fail(ErrorKind::kInvalid,
              "a memory file with " + std::to_string(st.st_blocks * 512) + " bytes in it; expected an empty one");
}

}  // namespace

Status fill_memory(image::Manifest& manifest, const chunk::Store& store, const image::ZeroMap& zeros, int even, int odd,
                   const OnProgress& progress) {
  for (const int file : {even, odd}) TRY(check_empty(file));
  TRY_ASSIGN(const std::unique_ptr<DemandFill> fill, DemandFill::make(manifest, store, zeros, even, odd));
  const auto fill_all = [&](bool tell) -> Status {
    for (;;) {
      TRY_ASSIGN(const std::optional<uint64_t> done, fill->fill_next());
      if (!done) return {};
      if (tell && progress)
        progress(
            {(fill->total_chunks() - fill->missing_chunks()) * DemandFill::kChunk, fill->total_chunks() * DemandFill::kChunk});
    }
  };
  std::vector<Status> outcomes(threads_beside_this_one());
  std::vector<std::thread> threads;
  for (Status& outcome : outcomes) threads.emplace_back([&] { outcome = fill_all(false); });
  const Status own = fill_all(true);
  for (std::thread& t : threads) t.join();
  if (!own) return own;
  for (Status& outcome : outcomes)
    if (!outcome) return std::move(outcome);
  if (progress) progress({fill->total_chunks() * DemandFill::kChunk, fill->total_chunks() * DemandFill::kChunk});
  return {};
}

}  // namespace ramet::commit
