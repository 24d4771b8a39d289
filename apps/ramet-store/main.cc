// ramet-store - looks after a store of images by hand: what is in it, is it whole, images in and out. What changes
// a store wants it alone; what only looks at it works beside a daemon that has it open.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/log.h"
#include "cli/exit_codes.h"
#include "commands.h"

using namespace ramet;
using namespace ramet::store_tool;

namespace {

int report(const Error& error) {
  std::fprintf(stderr, "ramet-store: %s\n", error.message().c_str());
  if (!error.hint().empty()) std::fprintf(stderr, "  %s\n", error.hint().c_str());
  return cli::exit_status(error.kind());
}
int end_with(const Status& status) { return status ? 0 : report(status.error()); }
int end_with(const Result<bool>& whole) {
  if (!whole) return report(whole.error());
  return *whole ? 0 : cli::exit_status(ErrorKind::kCorrupt);
}

constexpr const char* kFooter = R"(
A store is a directory: packs/ (all data), index.db (can be made again from the packs), images/ (which image consists of what).
export, ls, show, diff, stats and verify work beside a daemon whose store it is (STATE/store); the others want it alone.
Results go to standard output, progress to standard error. Exit status: 0, or as `ramet --help` says; verify and rebuild-index
end with that of "corrupt" when they found problems. `ramet-store COMMAND --help` says more about a command.

  ramet-store --store DIR import disk.raw debian
  ramet-store --store DIR import disk-2.raw debian-2 --parent debian
  ramet-store --store DIR import --format qcow2 cloud.qcow2 cloud
  ramet-store --store DIR import --format oci image-layout/ app --disk-mib 4096
  ramet-store --store DIR export --format qcow2 debian copy.qcow2
  ramet-store --store DIR export --format tar app app.tar
  ramet-store --store DIR export --format oci app app.oci.tar
  ramet-store --store DIR verify --json)";

constexpr const char* kImportFooter = R"(
  raw     a disk as it is; holes stay holes
  qcow2   one file that needs no other: backing files, external data files and encryption are refused. Needs qemu-img
  tar     a root file system, plain or compressed by gzip, bzip2, xz or zstd
  dir     the same as a directory; links are not followed, other file systems below it are left out
  oci     an OCI image layout, as a directory or as a tar of one; its layers, for linux/amd64

tar, dir and oci become an ext4 file system without partitions, with owners, modes, times, hard links and the extended attributes
user.* and security.*; POSIX ACLs are left out. Needs mke2fs. Foreign images are refused with the reason and the name if they
leave their root ('..', absolute paths, paths through links, hard links to what is not there), have device nodes, FIFOs or
sockets, or ask for too much: a disk of 4 TiB, 64 GiB unpacked, 1,000,000 files, 60,000 in one directory.

Work happens in files without a name in --work (the store's own directory if none is given): room for the disk is needed there,
and for the unpacked files of tar, dir and oci. An import that was cut leaves no image; `ls` shows it as unfinished. The same
command again goes on where it stopped, `rm` gives it up.)";

constexpr const char* kExportFooter = R"(
  raw     the disk as it is, with holes for zeros
  qcow2   the same as a qcow2 file. Needs qemu-img, and room for the raw disk beside the file meanwhile
  tar     the files of a disk that is an ext4 file system without partitions, with holes, links, times, extended attributes and
          POSIX ACLs; sockets and lost+found are left out
  oci     the same files as an OCI image of one layer, tagged with the image's name: a tar of its layout, or the layout as a
          directory if FILE ends with a slash. The layer is not compressed, and lies beside the file meanwhile
  dir     the files as a directory; owners and device nodes by root alone. The tar lies in the store's directory meanwhile

The file or directory is there when it is whole, or not at all. A file system that was not unmounted, or is damaged, is refused.)";

constexpr const char* kStatsFooter = R"(
Counted block by block over all images and snapshots: logical is what they would take one by one; unique, shared and dead divide what the store
keeps, before compression, by who needs it (manifests count, too); stored is the size of the packs.)";

constexpr const char* kGcFooter = R"(
What no image, no unfinished import and no snapshot needs goes away. Afterwards the packs take at most 1.5 times what is alive in them.)";

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Looks after a content-addressed store of disk images.", "ramet-store");
  app.set_version_flag("--version", "ramet-store " RAMET_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();
  Place place;
  app.add_option("--store", place.directory, "the store's directory (or RAMET_STORE)")->envname("RAMET_STORE")->required();
  app.add_flag("--json", place.json, "one line of JSON on standard output");
  app.add_flag("--quiet,-q", place.quiet, "no progress");

  std::string file, name, other, format = "raw";
  Import import;
  int status = 0;
  CLI::App* command = app.add_subcommand("import", "a disk, or the files of a root file system, become an image");
  command->add_option("FILE", import.file, "what to import: a file, or a directory for dir and oci")->required();
  command->add_option("NAME", import.name, "the image's name")->required();
  command->add_option("--format,-f", import.format, "raw, qcow2, tar, dir or oci; never guessed")->capture_default_str();
  command->add_option("--parent", import.parent, "an image that it is probably a version of: faster, and smaller");
  command->add_option("--tag", import.tag, "which image of an OCI layout with several");
  command->add_option("--disk-mib", import.disk_mib, "size of the file system made of tar, dir or oci; fitting, at least 1024")
      ->check(CLI::Range(uint64_t{64}, uint64_t{4} << 20));
  command->add_option("--work", import.work_directory, "directory for files without a name");
  command->footer(kImportFooter);
  command->callback([&] { status = end_with(import_image(place, import)); });
  command = app.add_subcommand("export", "an image, or the files in it, become a file or a directory");
  command->add_option("NAME", name, "the image")->required();
  command->add_option("FILE", file, "the file or directory to make; must not exist")->required();
  command->add_option("--format,-f", format, "raw, qcow2, tar, dir or oci; never guessed")->capture_default_str();
  command->footer(kExportFooter);
  command->callback([&] { status = end_with(export_image(place, name, file, format)); });
  command = app.add_subcommand("ls", "the images, imports that were cut, and snapshots of sandboxes");
  command->callback([&] { status = end_with(list_images(place)); });
  command = app.add_subcommand("show", "one image");
  command->add_option("NAME", name, "the image")->required();
  command->callback([&] { status = end_with(show_image(place, name)); });
  command = app.add_subcommand("diff", "the chunks in which two images differ");
  command->add_option("A", name, "an image")->required();
  command->add_option("B", other, "another of the same size")->required();
  command->callback([&] { status = end_with(diff_images(place, name, other)); });
  command = app.add_subcommand("rm", "an image, or an unfinished import, is forgotten; its space comes back at the next gc");
  command->add_option("NAME", name, "the image")->required();
  command->callback([&] { status = end_with(remove_image(place, name)); });
  command = app.add_subcommand("gc", "gives back the space of what no image uses");
  command->footer(kGcFooter);
  command->callback([&] { status = end_with(collect_garbage(place)); });
  command = app.add_subcommand("stats", "how much of what is in the store");
  command->footer(kStatsFooter);
  command->callback([&] { status = end_with(show_stats(place)); });
  command = app.add_subcommand("verify", "reads everything and says what is not as it must be");
  command->callback([&] { status = end_with(verify_store(place)); });
  command = app.add_subcommand("rebuild-index", "makes index.db again from the packs");
  command->callback([&] { status = end_with(rebuild(place)); });

  log_init("ramet-store", "", LogLevel::kWarn);
  CLI11_PARSE(app, argc, argv);
  return status;
}
