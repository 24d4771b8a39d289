#include "cli/content_digest.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/digest.h"
#include "base/file.h"

namespace ramet::cli {
namespace {

namespace fs = std::filesystem;

class Hash {
 public:
  Hash() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  // With its length, so that no two lists of words look the same.
  void add_word(std::string_view word) {
    add(std::to_string(word.size()) + ":");
    add(word);
  }
  std::string end() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &length);
    return to_hex(std::as_bytes(std::span(digest, length)));
  }

 private:
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

Result<std::string> file_digest(const std::string& path) {
  TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY));
  Hash hash;
  std::string piece(256 * 1024, '\0');
  for (;;) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("reading " + path);
    if (n == 0) return hash.end();
    hash.add(std::string_view(piece).substr(0, static_cast<size_t>(n)));
  }
}

// `name`: as the copy has it.
Status add_entry(Hash& hash, const std::string& path, const std::string& name, const struct stat& st) {
  hash.add_word(name);
  hash.add_word(std::to_string(st.st_mode));
  if (S_ISDIR(st.st_mode)) return {};
  if (S_ISLNK(st.st_mode)) {
    std::error_code ec;
    hash.add_word(fs::read_symlink(path, ec).string());
    if (ec) return fail_errno("reading link " + path, ec.value());
    return {};
  }
  if (!S_ISREG(st.st_mode)) return fail(ErrorKind::kInvalid, path + " is neither a file, a directory nor a link");
  TRY_ASSIGN(const std::string digest, file_digest(path));
  hash.add_word(digest);
  return {};
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  Hash hash;
  hash.add(bytes);
  return hash.end();
}

Result<std::string> content_digest(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return fail_errno("looking at " + path);
  Hash hash;
  TRY(add_entry(hash, path, "", st));
  if (!S_ISDIR(st.st_mode)) return hash.end();
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(path, ec), end; !ec && it != end; it.increment(ec))
    names.push_back(it->path().lexically_relative(path).string());
  if (ec) return fail_errno("listing " + path, ec.value());
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const std::string entry = path + "/" + name;
    if (::lstat(entry.c_str(), &st) != 0) return fail_errno("looking at " + entry);
    TRY(add_entry(hash, entry, name, st));
  }
  return hash.end();
}

}  // namespace ramet::cli
