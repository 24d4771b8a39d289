// chunk/side_by_side.h - SHA-256 of many blocks side by side, in the lanes of vector registers: twice the rate of one after the
// other, where each step waits for the one before. By libipsec-mb. Not here: what the digests are for (digest.h).
// A resource of 200 KiB, which takes a tenth of a millisecond to make. Thread: one at a time.
#pragma once

#include <memory>
#include <span>

#include "base/digest.h"

struct IMB_MGR;

namespace ramet::chunk {

class SideBySide {
 public:
  SideBySide();
  ~SideBySide();

  // The digests of blocks that are not all zero; of the others that of zeros. False: this processor or this moment has not
  // what it takes, and `out` holds anything.   Requires: whole blocks, one digest for each.
  bool digests(std::span<const std::byte> blocks, std::span<Digest> out);

 private:
  struct Free {
    void operator()(IMB_MGR* m) const;
  };
  std::unique_ptr<IMB_MGR, Free> manager_;
};

}  // namespace ramet::chunk
