// commit/tar_use.h - what the tar of an image's files is for, as `ramet-files` is told it. Thread: values.
#pragma once

#include <string_view>

namespace ramet::commit {

enum class TarUse {
  kFiles,
  kLayer,  // of an OCI image, where files named `.wh.NAME` take NAME away, so that there can be none
};
inline constexpr std::string_view kWhiteout = ".wh.";  // Source: OCI image-spec v1.0, layer
constexpr std::string_view name_of(TarUse use) { return use == TarUse::kLayer ? "layer" : "files"; }

}  // namespace ramet::commit
