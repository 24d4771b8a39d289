// overlay_export - writes the disk that a machine saw (base and overlays) as one sparse raw file, for e2fsck and comparisons in
// tests. Reads the overlays only; meant for copies or for disks that nobody writes any more.
#include <CLI/CLI.hpp>
#include <iostream>

#include "base/file.h"
#include "image/merge.h"
#include "image/raw_source.h"

namespace {

using namespace ramet;
using namespace ramet::image;

struct Arguments {
  std::string base, out;
  uint64_t size_bytes = 0;
  std::vector<std::string> overlays;
  bool host_crashed = false;
};

Result<OverlayFiles> open_overlay(const std::string& spec) {
  const size_t colon = spec.find(':');
  if (colon == std::string::npos) return fail(ErrorKind::kInvalid, "overlay '" + spec + "' is not DATA:LOG");
  TRY_ASSIGN(UniqueFd data, open_file(spec.substr(0, colon), O_RDONLY));
  TRY_ASSIGN(UniqueFd log, open_file(spec.substr(colon + 1), O_RDONLY));
  return overlay_from_descriptors(spec, {}, std::move(data), {}, std::move(log));
}

Status run(const Arguments& arguments) {
  std::unique_ptr<BlockSource> base;
  uint64_t size = arguments.size_bytes;
  if (!arguments.base.empty()) {
    TRY_ASSIGN(UniqueFd fd, open_file(arguments.base, O_RDONLY));
    if (size == 0) {
      TRY_ASSIGN(size, file_size(fd.get()));
    }
    base = std::make_unique<RawSource>(std::make_unique<PosixFile>(std::move(fd)), size / kBlockBytes);
  }
  if (size == 0 || size % kBlockBytes != 0)
    return fail(ErrorKind::kInvalid, "disk size " + std::to_string(size) + " is not a multiple of 4096");
  std::vector<OverlayFiles> overlays;
  for (const std::string& spec : arguments.overlays) {
    TRY_ASSIGN(OverlayFiles files, open_overlay(spec));
    overlays.push_back(std::move(files));
  }
  const HostHistory history = arguments.host_crashed ? HostHistory::kCrashed : HostHistory::kSameBoot;
  TRY_ASSIGN(const auto stack,
             OverlayStack::open(std::move(base), size / kBlockBytes, std::move(overlays), std::nullopt, history));
  TRY_ASSIGN(UniqueFd writer, open_file(arguments.out, O_RDWR | O_CREAT | O_TRUNC, 0644));
  TRY_ASSIGN(UniqueFd reader, reopen(writer.get(), O_RDONLY));
  PosixFile out(std::move(reader), std::move(writer));
  return export_raw(*stack, out);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes base and overlays of a disk as one raw file.");
  Arguments arguments;
  app.add_option("--base", arguments.base, "raw base file; none: all zero");
  app.add_option("--size", arguments.size_bytes, "disk size in bytes (default: the base's)");
  app.add_option("--overlay", arguments.overlays, "DATA:LOG, oldest first; the writable one last");
  app.add_option("--out", arguments.out, "the file to write")->required();
  app.add_flag("--host-crashed", arguments.host_crashed, "believe only what was durable");
  CLI11_PARSE(app, argc, argv);
  const Status done = run(arguments);
  if (done) return 0;
  std::cerr << "overlay_export: " << done.error().to_string() << "\n";
  return 1;
}
