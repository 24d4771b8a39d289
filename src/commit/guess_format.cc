#include "commit/guess_format.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ramet::commit {
namespace {

using namespace std::string_view_literals;

struct Mark {
  size_t offset;
  std::string_view bytes;
  std::string_view name = {};
};

constexpr Mark kQcow2{0, "QFI\xfb"sv};
constexpr std::array kCompressed = {Mark{0, "\x1f\x8b"sv}, Mark{0, "BZh"sv},
                                    Mark{0,
                                         "\xfd"
                                         "7zXZ\0"sv},
                                    Mark{0, "\x28\xb5\x2f\xfd"sv}};
constexpr std::array kOthers = {
    Mark{0, "KDMV"sv, "VMDK"}, Mark{0, "vhdxfile"sv, "VHDX"},         Mark{0, "conectix"sv, "VHD"},
    Mark{0, "QED\0"sv, "QED"}, Mark{64, "\x7f\x10\xda\xbe"sv, "VDI"},
};
constexpr std::string_view kZip = "PK\x03\x04"sv;

constexpr size_t kTarBlock = 512;
constexpr Mark kTar{257, "ustar"sv};

std::string_view part(std::string_view head, size_t offset, size_t bytes) {
  return offset < head.size() ? head.substr(offset, bytes) : std::string_view();
}
bool has(std::string_view head, const Mark& mark) { return part(head, mark.offset, mark.bytes.size()) == mark.bytes; }

std::string_view text(std::string_view field) { return field.substr(0, field.find('\0')); }

// Of an octal number; more than fits the head ends the walk, whatever it is.
size_t size_of(std::string_view field) {
  size_t size = 0;
  for (const char c : text(field)) {
    if (c < '0' || c > '7' || size > kGuessBytes) break;
    size = size * 8 + static_cast<size_t>(c - '0');
  }
  return size;
}

// The name of the first member that is more than the root itself; empty: none within the head.
std::string_view first_member(std::string_view head) {
  for (size_t at = 0; has(part(head, at, kTarBlock), kTar);) {
    const std::string_view header = part(head, at, kTarBlock);
    std::string_view name = text(part(header, 0, 100));
    const char type = part(header, 156, 1).empty() ? '\0' : header[156];
    while (name.starts_with("./")) name.remove_prefix(2);
    const bool says_more = type == 'x' || type == 'g' || type == 'L' || type == 'K';  // about the next one
    if (!says_more && !name.empty() && name != ".") return name;
    at += kTarBlock + (size_of(part(header, 124, 12)) + kTarBlock - 1) / kTarBlock * kTarBlock;
  }
  return {};
}

Result<ImageFormat> kind_of_tar(std::string_view head) {
  const std::string_view first = first_member(head);
  if (first == "oci-layout" || first == "index.json" || first == "blobs" || first.starts_with("blobs/"))
    return ImageFormat::kOci;
  if (first != "manifest.json" && first != "repositories") return ImageFormat::kTar;
  return tl::unexpected<Error>(
      Error(ErrorKind::kUnsupported, "the file looks like an archive of `docker save`")
          .with_hint("`skopeo copy docker-archive:FILE oci-archive:NEW:latest` makes an OCI image of it."));
}

}  // namespace

Result<ImageFormat> guess_format(std::span<const std::byte> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kGuessBytes));
  const auto begins_so = [&](const Mark& mark) { return has(head, mark); };
  if (begins_so(kQcow2)) return ImageFormat::kQcow2;
  if (std::ranges::any_of(kCompressed, begins_so)) return ImageFormat::kTar;
  if (begins_so(kTar)) return kind_of_tar(head);
  if (const auto other = std::ranges::find_if(kOthers, begins_so); other != kOthers.end())
    return tl::unexpected<Error>(
        Error(ErrorKind::kUnsupported, "the file looks like " + std::string(other->name))
            .with_hint("`qemu-img convert -O qcow2 FILE NEW.qcow2` makes an image that is taken; the format "
                       "raw takes the bytes as they are."));
  if (head.starts_with(kZip))
    return tl::unexpected<Error>(Error(ErrorKind::kUnsupported, "the file looks like a zip archive")
                                     .with_hint("Unpack it first; the format raw takes the bytes as they are."));
  return ImageFormat::kRaw;
}

}  // namespace ramet::commit
