#include "commit/export.h"

#include <filesystem>

#include "commit/output_file.h"
#include "commit/program.h"

namespace ramet::commit {
namespace {

// qcow2 has at most so much more than the disk: tables of a thousandth, and headers.
uint64_t most_qcow2_bytes(uint64_t disk_bytes) { return disk_bytes + disk_bytes / 256 + (16u << 20); }

Status convert(int raw, int qcow2, uint64_t disk_bytes, const ImageLimits& limits) {
  return run_program({.argv = {"qemu-img", "convert", "-f", "raw", "-O", "qcow2", path_of(raw), path_of(qcow2)},
                      .files = {raw, qcow2},
                      .max_file_bytes = most_qcow2_bytes(disk_bytes),
                      .time = limits.program_time});
}

}  // namespace

Result<ExportFormat> export_format(std::string_view name) {
  if (name == "raw") return ExportFormat::kRaw;
  if (name == "qcow2") return ExportFormat::kQcow2;
  return fail(ErrorKind::kInvalid, "image format '" + std::string(name) + "'; images are exported as raw or qcow2");
}

Status export_image(ExportFormat format, image::Manifest& manifest, const chunk::Store& store, const std::string& path,
                    const OnProgress& progress, const ImageLimits& limits) {
  TRY_ASSIGN(OutputFile out, OutputFile::at(path));
  if (format == ExportFormat::kRaw) {
    TRY(export_raw(manifest, store, out.fd(), progress));
    return out.publish();
  }
  const std::string directory = std::filesystem::path(path).parent_path();
  TRY_ASSIGN(const OutputFile raw, OutputFile::temporary(directory.empty() ? "." : directory));
  TRY(export_raw(manifest, store, raw.fd(), progress));
  TRY(convert(raw.fd(), out.fd(), manifest.root().blocks * image::kBlockBytes, limits));
  return out.publish();
}

}  // namespace ramet::commit
