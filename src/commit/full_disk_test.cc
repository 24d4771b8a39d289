// Imports and exports beside no daemon, on a disk that is really full: each step that writes fails in turn, says where there is
// no room, and leaves what was there before. By the daemon: host/images/full_disk_test.cc.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "base/place.h"
#include "base/testing/small_disk.h"
#include "chunk/directory_storage.h"
#include "chunk/store.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/temporary_directory.h"
#include "commit/export.h"
#include "commit/import.h"

namespace ramet::commit {
namespace {

using ramet::testing::fail_at_every_write;
using ramet::testing::on_a_small_disk;
using ramet::testing::SmallDisk;

constexpr uint64_t kSmallBytes = 64u << 20, kDiskBytes = 64u << 20;
constexpr size_t kNoiseBytes = 24 * 4096;
// Each attempt runs programs; RAMET_SOAK tries every page.
const uint64_t kStepBytes = std::getenv("RAMET_SOAK") ? 4096 : 16 * 4096;

Status saying_where(const SmallDisk& disk, Status done) {
  if (done) return done;
  EXPECT_NE(done.error().message().find(disk.path()), std::string::npos) << done.error().message();
  return done;
}

class FullDisk : public ::testing::TestWithParam<const char*> {
 protected:
  // Of what is imported, in this format; beside the small disk.
  void SetUp() override {
    const chunk::testing::Bytes noise = chunk::testing::noise(kNoiseBytes, 1);
    std::filesystem::create_directories(made_ + "/files/below");
    ASSERT_TRUE(replace_file(made_ + "/files/below/noise", {reinterpret_cast<const char*>(noise.data()), noise.size()}));
    ASSERT_TRUE(replace_file(made_ + "/files/word", "word"));
    const std::string commands =
        "cp files/below/noise raw && qemu-img convert -q -f raw -O qcow2 raw qcow2 && tar -C files -cf tar . && ln -s files "
        "dir && "
        "umoci init --layout oci && umoci new --image oci:a && umoci unpack --image oci:a b && cp -r files/. b/rootfs && "
        "umoci repack --image oci:a b";
    ASSERT_EQ(std::system(("cd " + made_ + " && (" + commands + ") >log 2>&1").c_str()), 0);
  }
  struct Opened {
    std::unique_ptr<chunk::Store> store;
    Catalogue catalogue;
  };
  static Opened open(const std::string& directory) {
    EXPECT_TRUE(make_directories(directory));
    return {
        chunk::Store::open(chunk::DirectoryStorage::open(directory + "/packs").value(), directory + "/index.db", {}).value(),
        Catalogue::open(directory + "/images").value()};
  }
  Status import(const std::string& name, const std::string& format, const std::string& store_directory, Opened& in) const {
    const ImportRequest request{.format = image_format(format).value(),
                                .path = std::filesystem::canonical(made_ + "/" + format),
                                .name = name,
                                .disk_bytes = kDiskBytes,
                                .work_directory = store_directory};
    TRY(naming(store_directory, import_image(request, *in.store, in.catalogue)));
    return {};
  }

  chunk::testing::TemporaryDirectory directory_;
  const std::string made_ = directory_.path + "/made";
};

class FullDiskOfTheStore : public FullDisk {};

TEST_P(FullDiskOfTheStore, LeavesNothingOfAnImport) {
  on_a_small_disk(directory_.path + "/disk", kSmallBytes, [this](SmallDisk& disk) {
    Opened in = open(disk.path() + "/store");
    ASSERT_TRUE(import("first", "raw", disk.path() + "/store", in));
    const std::set<std::string> files = disk.files();
    fail_at_every_write(
        disk, [&] { return saying_where(disk, import("second", GetParam(), disk.path() + "/store", in)); },
        [&] {
          EXPECT_EQ(in.catalogue.names().value(), std::vector<std::string>{"first"});
          ASSERT_TRUE(in.catalogue.unfinished_names()->empty());
          EXPECT_EQ(disk.files(), files);
        },
        kStepBytes);
    EXPECT_EQ(in.catalogue.names().value(), (std::vector<std::string>{"first", "second"}));
  });
}
INSTANTIATE_TEST_SUITE_P(From, FullDiskOfTheStore, ::testing::Values("raw", "qcow2", "tar", "dir", "oci"));

class FullDiskOfTheTarget : public FullDisk {};

TEST_P(FullDiskOfTheTarget, LeavesNothingOfAnExport) {
  on_a_small_disk(directory_.path + "/disk", kSmallBytes, [this](SmallDisk& disk) {
    const std::string beside = directory_.path + "/store";
    Opened in = open(beside);
    ASSERT_TRUE(import("files", "tar", beside, in));
    const ExportRequest request{.format = export_format(GetParam()).value(), .name = "files"};
    const auto export_to = [&](const std::string& path) {
      image::Manifest manifest = manifest_in(*in.store, in.catalogue.get("files").value());
      return export_image(request, manifest, *in.store, path);
    };
    ASSERT_TRUE(export_to(directory_.path + "/whole"));
    fail_at_every_write(
        disk, [&] { return saying_where(disk, export_to(disk.path() + "/out")); },
        [&] { EXPECT_EQ(disk.files(), std::set<std::string>()); }, kStepBytes);
    // qemu-img writes what it has read in any order.
    const std::string compare = std::string(GetParam()) == "qcow2" ? "qemu-img compare -q " : "cmp ";
    EXPECT_EQ(std::system((compare + disk.path() + "/out " + directory_.path + "/whole").c_str()), 0);
  });
}
INSTANTIATE_TEST_SUITE_P(As, FullDiskOfTheTarget, ::testing::Values("raw", "qcow2", "tar", "oci"));

}  // namespace
}  // namespace ramet::commit
