#include "commit/export.h"

#include <filesystem>

#include "base/output_file.h"
#include "base/place.h"
#include "commit/oci_export.h"
#include "commit/program.h"
#include "commit/tar_export.h"

namespace ramet::commit {
namespace {

// qcow2 has at most so much more than the disk: tables of a thousandth, and headers.
uint64_t most_qcow2_bytes(uint64_t disk_bytes) { return disk_bytes + disk_bytes / 256 + (16u << 20); }

Status convert(int raw, int qcow2, uint64_t disk_bytes, const ImageLimits& limits) {
  return run_program({.argv = {"qemu-img", "convert", "-f", "raw", "-O", "qcow2", path_of(raw), path_of(qcow2)},
                      .files = {raw, qcow2},
                      .max_file_bytes = most_qcow2_bytes(disk_bytes),
                      .time = limits.program_time,
                      .on_tick = [&] { return limits.admit(kAdmitBytes); }});
}

// `directory`: for work.
Status write_as(const ExportRequest& request, image::Manifest& manifest, const chunk::Store& store, const OutputFile& out,
                const std::string& directory) {
  const OnProgress& progress = request.progress;
  const ImageLimits& limits = request.limits;
  switch (request.format) {
    case ExportFormat::kRaw: return export_raw(manifest, store, out.fd(), progress);
    case ExportFormat::kTar: return export_tar(TarUse::kFiles, manifest, store, out.fd(), progress, limits);
    case ExportFormat::kOci: return export_oci({out.fd(), request.name, directory}, manifest, store, progress, limits);
    case ExportFormat::kQcow2: break;
  }
  TRY_ASSIGN(const OutputFile raw, OutputFile::temporary(directory));
  TRY(export_raw(manifest, store, raw.fd(), progress));
  return convert(raw.fd(), out.fd(), manifest.root().blocks * image::kBlockBytes, limits);
}

}  // namespace

Result<ExportFormat> export_format(std::string_view name) {
  if (name == "raw") return ExportFormat::kRaw;
  if (name == "qcow2") return ExportFormat::kQcow2;
  if (name == "tar") return ExportFormat::kTar;
  if (name == "oci") return ExportFormat::kOci;
  return fail(ErrorKind::kInvalid, "image format '" + std::string(name) + "'; images are exported as raw, qcow2, tar or oci");
}

Status export_image(const ExportRequest& request, image::Manifest& manifest, const chunk::Store& store,
                    const std::string& path) {
  TRY_ASSIGN(OutputFile out, OutputFile::at(path));
  const std::string directory = std::filesystem::path(path).parent_path();
  TRY(naming(path, write_as(request, manifest, store, out, directory.empty() ? "." : directory)));
  return naming(path, out.publish());
}

Result<UniqueFd> export_unnamed(const ExportRequest& request, image::Manifest& manifest, const chunk::Store& store,
                                const std::string& directory) {
  TRY_ASSIGN(OutputFile out, OutputFile::temporary(directory));
  TRY(naming(directory, write_as(request, manifest, store, out, directory)));
  return std::move(out).release();
}

}  // namespace ramet::commit
