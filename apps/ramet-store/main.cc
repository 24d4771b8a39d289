// ramet-store - looks after a store of images by hand: what is in it, is it whole, raw files in and out. Works on a store that
// nobody else has open.
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
Results go to standard output, progress to standard error. Exit status: 0, or as `ramet --help` says; verify and rebuild-index
end with that of "corrupt" when they found problems.

  ramet-store --store DIR import disk.raw debian
  ramet-store --store DIR import disk-2.raw debian-2 --parent debian
  ramet-store --store DIR export debian copy.raw
  ramet-store --store DIR verify --json)";

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

  std::string file, name, other, parent;
  int status = 0;
  CLI::App* command = app.add_subcommand("import", "a raw file becomes an image");
  command->add_option("FILE", file, "the raw disk")->required();
  command->add_option("NAME", name, "the image's name")->required();
  command->add_option("--parent", parent, "an image that it is probably a version of: faster, and smaller");
  command->callback([&] { status = end_with(import_image(place, file, name, parent)); });
  command = app.add_subcommand("export", "an image becomes a raw file, with holes for zeros");
  command->add_option("NAME", name, "the image")->required();
  command->add_option("FILE", file, "the file to make; must not exist")->required();
  command->callback([&] { status = end_with(export_image(place, name, file)); });
  command = app.add_subcommand("ls", "the images");
  command->callback([&] { status = end_with(list_images(place)); });
  command = app.add_subcommand("show", "one image");
  command->add_option("NAME", name, "the image")->required();
  command->callback([&] { status = end_with(show_image(place, name)); });
  command = app.add_subcommand("diff", "the chunks in which two images differ");
  command->add_option("A", name, "an image")->required();
  command->add_option("B", other, "another of the same size")->required();
  command->callback([&] { status = end_with(diff_images(place, name, other)); });
  command = app.add_subcommand("rm", "an image is forgotten; its space comes back at the next gc");
  command->add_option("NAME", name, "the image")->required();
  command->callback([&] { status = end_with(remove_image(place, name)); });
  command = app.add_subcommand("gc", "gives back the space of what no image uses");
  command->callback([&] { status = end_with(collect_garbage(place)); });
  command = app.add_subcommand("stats", "how much of what is in the store");
  command->callback([&] { status = end_with(show_stats(place)); });
  command = app.add_subcommand("verify", "reads everything and says what is not as it must be");
  command->callback([&] { status = end_with(verify_store(place)); });
  command = app.add_subcommand("rebuild-index", "makes index.db again from the packs");
  command->callback([&] { status = end_with(rebuild(place)); });

  log_init("ramet-store", "", LogLevel::kWarn);
  CLI11_PARSE(app, argc, argv);
  return status;
}
