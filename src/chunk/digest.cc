#include "chunk/digest.h"

#include <openssl/sha.h>

#include <algorithm>

namespace ramet::chunk {
Digest sha256(std::span<const std::byte> data) {
  Digest d;
  // SHA256() keeps its state on the stack; EVP would allocate for each of the millions of blocks.
  ::SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), reinterpret_cast<unsigned char*>(d.bytes.data()));
  return d;
}

BlockPrint print_of(std::span<const std::byte> block) {
  const Digest d = sha256(block);
  BlockPrint print;
  std::copy_n(d.bytes.begin(), print.bytes.size(), print.bytes.begin());
  return print;
}

}  // namespace ramet::chunk
