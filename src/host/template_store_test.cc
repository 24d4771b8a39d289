#include "host/template_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/testing/small_disk.h"
#include "chunk/testing/contents.h"
#include "host/admission.h"

namespace ramet::host {
namespace {

using ramet::testing::fail_at_every_write;
using ramet::testing::on_a_small_disk;
using ramet::testing::SmallDisk;

class TemplateStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/ramet-templates-XXXXXX";
    open(::mkdtemp(path));
  }
  void open(const std::string& directory) {
    paths_.state_dir = directory;
    ASSERT_TRUE(make_directories(paths_.templates()));
    ImageStoreOptions images;
    images.directory = paths_.store();
    images.cache_bytes = 64u << 20;
    images_ = ImageStore::open(images).value();
    store_ = std::make_unique<TemplateStore>(
        paths_, *images_, [this](uint64_t bytes) { return Admission(paths_.state_dir, {}).check_disk(bytes); });
  }
  void TearDown() override {
    std::error_code ec;
    std::filesystem::remove_all(paths_.state_dir, ec);
  }
  TemplateFile put(const std::string& file, const std::string& bytes) {
    Result<std::unique_ptr<TemplateFileWriter>> w = store_->upload_file("t", file);
    EXPECT_TRUE(w);
    for (size_t i = 0; i < bytes.size(); i += 5000) EXPECT_TRUE((*w)->write(as_bytes(std::string_view(bytes).substr(i, 5000))));
    return *(*w)->finish();
  }
  void put_all() {
    files_ = {put("vmlinux", std::string("\x7f"
                                         "ELF\x02",
                                         5) +
                                 std::string(60, 'k')),
              put("initrd", "initrd"), put("disk.img", disk_)};
  }
  std::string json(const std::string& extra = "") {
    std::string files;
    for (const TemplateFile& f : files_)
      files += (files.empty() ? "\"" : ",\"") + f.name + "\":{\"bytes\":" + std::to_string(f.bytes) + ",\"sha256\":\"" +
               f.sha256 + "\"}";
    return "{\"format\":1,\"name\":\"t\",\"kernel_release\":\"6\",\"vcpus\":2,\"memory_mib\":256,\"disk_bytes\":65536," +
           extra + "\"files\":{" + files + "}}";
  }

  // Of the image that the template's disk became.
  std::string disk_of(const Template& t) {
    const std::shared_ptr<OpenImage> image = images_->use(disk_image_id(t.info)).value();
    const UniqueFd file = make_memfd("disk", 0).value();
    EXPECT_TRUE(images_->export_raw(*image, file.get()));
    std::string out(file_size(file.get()).value(), '\0');
    EXPECT_TRUE(pread_exact(file.get(), std::as_writable_bytes(std::span(out)), 0));
    return out;
  }
  static std::string noise_disk() {
    std::string out(65536, '\0');
    std::ranges::copy(chunk::testing::noise(out.size(), 3), std::as_writable_bytes(std::span(out)).begin());
    return out;
  }
  template <class T>
  static Status status_of(const Result<T>& result) {
    if (!result) return tl::unexpected<Error>(result.error());
    return {};
  }
  static size_t names_with(const SmallDisk& disk, const std::string& part) {
    const std::set<std::string> files = disk.files();
    return static_cast<size_t>(std::ranges::count_if(files, [&](const std::string& f) { return f.find(part) != f.npos; }));
  }
  std::string raw_disk() const { return paths_.template_dir("t") + "/disk.img"; }

  Paths paths_;
  std::unique_ptr<ImageStore> images_;
  std::unique_ptr<TemplateStore> store_;
  std::string disk_ = std::string(4096, 'd') + std::string(57344, '\0') + std::string(4096, 'e');
  std::vector<TemplateFile> files_;
};

TEST_F(TemplateStoreTest, PublishesWhatWasUploaded) {
  put_all();
  const Result<Template> t = store_->commit("t", json());
  ASSERT_TRUE(t) << t.error().to_string();
  EXPECT_EQ(t->info.vcpus, 2u);
  EXPECT_EQ(t->info.disk_bytes, 65536u);
  EXPECT_EQ(disk_of(*t), disk_);
  EXPECT_FALSE(std::filesystem::exists(raw_disk())) << "the disk is in the store, and nowhere else";
  EXPECT_TRUE(store_->open_files(*t));
  EXPECT_EQ(store_->list().size(), 1u);
}

TEST_F(TemplateStoreTest, KeepsTheDisksThatTemplatesNeed) {
  put_all();
  ASSERT_TRUE(store_->commit("t", json()));
  EXPECT_TRUE(store_->keep_needed_disks({}));
  EXPECT_EQ(images_->names(ImageSpace::kTemplate)->size(), 1u);
  ASSERT_TRUE(store_->remove("t"));
  EXPECT_TRUE(store_->keep_needed_disks({}));
  EXPECT_TRUE(images_->names(ImageSpace::kTemplate)->empty());
}

TEST_F(TemplateStoreTest, RemovesNoDiskWhileATemplateCannotBeRead) {
  put_all();
  ASSERT_TRUE(store_->commit("t", json()));
  ASSERT_TRUE(replace_file(paths_.template_dir("t") + "/template.json", "{"));
  EXPECT_EQ(store_->keep_needed_disks({}).error().kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(images_->names(ImageSpace::kTemplate)->size(), 1u);
}

TEST_F(TemplateStoreTest, RemovesNoDiskOfATemplateThatIsBeingCommitted) {
  put_all();
  std::atomic<bool> done{false};
  std::thread tending([&] {
    while (!done) EXPECT_TRUE(store_->keep_needed_disks({}));
  });
  for (int i = 0; i < 20; i++) {
    disk_[0] = static_cast<char>('a' + i);
    files_[2] = put("disk.img", disk_);
    const Result<Template> t = store_->commit("t", json());
    ASSERT_TRUE(t) << t.error().to_string();
    EXPECT_TRUE(store_->open_files(*t)) << i;
  }
  done = true;
  tending.join();
}

TEST_F(TemplateStoreTest, ReplacesAsAWhole) {
  put_all();
  ASSERT_TRUE(store_->commit("t", json()));
  const std::string first = store_->get("t")->digest;
  files_[1] = put("initrd", "another initrd");  // the rest is taken over from the present template
  const Result<Template> t = store_->commit("t", json());
  ASSERT_TRUE(t) << t.error().to_string();
  EXPECT_NE(t->digest, first);
  EXPECT_EQ(*read_file(paths_.template_dir("t") + "/initrd"), "another initrd");
}

TEST_F(TemplateStoreTest, RefusesOtherBytesThanTheDigestSays) {
  put_all();
  files_[2].sha256[0] = files_[2].sha256[0] == '0' ? '1' : '0';
  const Result<Template> t = store_->commit("t", json());
  ASSERT_FALSE(t);
  EXPECT_EQ(t.error().kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(store_->get("t").error().kind(), ErrorKind::kNotFound);
}

TEST_F(TemplateStoreTest, RefusesAMissingFile) {
  put_all();
  std::filesystem::remove(paths_.templates() + "/.upload-t/initrd");
  const Result<Template> t = store_->commit("t", json());
  ASSERT_FALSE(t);
  EXPECT_EQ(t.error().kind(), ErrorKind::kConflict);
  EXPECT_NE(t.error().message().find("'initrd'"), std::string::npos);
}

TEST_F(TemplateStoreTest, RefusesACompressedKernel) {
  put_all();
  files_[0] = put("vmlinux", std::string(200, 'z'));
  const Result<Template> t = store_->commit("t", json());
  ASSERT_FALSE(t);
  EXPECT_EQ(t.error().kind(), ErrorKind::kInvalid);
}

TEST_F(TemplateStoreTest, NoticesAFileThatWasCutLater) {
  put_all();
  const Result<Template> t = store_->commit("t", json());
  std::filesystem::resize_file(paths_.template_dir("t") + "/initrd", 3);
  const Result<TemplateFiles> files = store_->open_files(*t);
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().kind(), ErrorKind::kCorrupt);
  EXPECT_NE(files.error().message().find("3 bytes"), std::string::npos);
}

TEST_F(TemplateStoreTest, AnUploadIsSparseUntilTheCommit) {
  put_all();
  struct stat st;
  ASSERT_EQ(::stat((paths_.templates() + "/.upload-t/disk.img").c_str(), &st), 0);
  EXPECT_LE(st.st_blocks, 16) << "zero blocks are holes";
}

TEST_F(TemplateStoreTest, ADiskOfAnEarlierVersionIsBroughtInWhenItIsUsed) {
  put_all();
  const Result<Template> t = store_->commit("t", json());
  ASSERT_TRUE(images_->remove(disk_image_id(t->info)));
  ASSERT_TRUE(replace_file(raw_disk(), disk_));
  const Result<TemplateFiles> files = store_->open_files(*t);
  ASSERT_TRUE(files) << files.error().to_string();
  EXPECT_EQ(disk_of(*t), disk_);
  EXPECT_FALSE(std::filesystem::exists(raw_disk()));
}

TEST_F(TemplateStoreTest, ATemplateWhoseDiskIsGoneSaysSo) {
  put_all();
  const Result<Template> t = store_->commit("t", json());
  ASSERT_TRUE(images_->remove(disk_image_id(t->info)));
  const Result<TemplateFiles> files = store_->open_files(*t);
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().kind(), ErrorKind::kCorrupt);
  EXPECT_NE(files.error().message().find("disk.img"), std::string::npos) << files.error().message();
}

TEST_F(TemplateStoreTest, ADiskThatTheStoreHasNeedNotTravelAgain) {
  put_all();
  ASSERT_TRUE(store_->commit("t", json()));
  ASSERT_TRUE(store_->remove("t"));
  put("vmlinux", std::string("\x7f"
                             "ELF\x02",
                             5) +
                     std::string(60, 'k'));
  put("initrd", "initrd");
  const Result<Template> t = store_->commit("t", json());
  ASSERT_TRUE(t) << t.error().to_string();
  EXPECT_EQ(disk_of(*t), disk_);
}

TEST_F(TemplateStoreTest, ItsDiskIsInTheCacheForTheBoot) {
  put_all();
  ASSERT_TRUE(store_->commit("t", json()));
  EXPECT_EQ(images_->cache().usage().chunks, 1u);
}

// Whichever write of the commit fails: the template of before is there, and the next attempt finds what it needs.
TEST_F(TemplateStoreTest, OnAFullDiskThePresentTemplateStays) {
  on_a_small_disk(paths_.state_dir + "/disk", 64u << 20, [this](SmallDisk& disk) {
    open(disk.path());
    put_all();
    const Template first = store_->commit("t", json()).value();
    const std::string first_disk = std::exchange(disk_, noise_disk());
    put_all();
    fail_at_every_write(
        disk, [&]() -> Status { return status_of(store_->commit("t", json())); },
        [&] {
          EXPECT_EQ(store_->get("t")->digest, first.digest);
          EXPECT_TRUE(store_->open_files(first));
          EXPECT_EQ(disk_of(first), first_disk);
          EXPECT_EQ(names_with(disk, ".tmp."), 0u);
          EXPECT_TRUE(store_->keep_needed_disks({}));  // as the daemon does all the time
          EXPECT_EQ(images_->names(ImageSpace::kTemplate)->size(), 1u);
          put_all();
        });
    EXPECT_EQ(disk_of(store_->get("t").value()), disk_);
  });
}

TEST_F(TemplateStoreTest, AnUploadThatTheDiskCannotTakeLeavesNothing) {
  on_a_small_disk(paths_.state_dir + "/disk", 64u << 20, [this](SmallDisk& disk) {
    open(disk.path());
    const std::string bytes = noise_disk();
    for (const uint64_t room : {0u, 4096u, 32768u}) {
      const size_t before = disk.files().size();
      {
        const std::unique_ptr<TemplateFileWriter> writer = store_->upload_file("t", "disk.img").value();
        EXPECT_TRUE(writer->write(as_bytes(bytes)));
        disk.fill(room);
        EXPECT_EQ(writer->write(as_bytes(bytes)).error().kind(), ErrorKind::kNoSpace);
      }
      EXPECT_EQ(store_->upload_file("t", "disk.img").error().kind(), ErrorKind::kNoSpace);
      EXPECT_EQ(disk.files().size(), before);
      disk.free();
    }
    put_all();
    EXPECT_TRUE(store_->commit("t", json()));
  });
}

TEST_F(TemplateStoreTest, RemovingWhatWasOnlyUploadedGivesItUp) {
  put_all();
  EXPECT_TRUE(store_->remove("t"));
  EXPECT_TRUE(std::filesystem::is_empty(paths_.templates()));
  EXPECT_EQ(store_->remove("t").error().kind(), ErrorKind::kNotFound);
}

TEST_F(TemplateStoreTest, RemovingATemplateLeavesUploadsAlone) {
  put_all();
  ASSERT_TRUE(store_->commit("t", json()));
  put("initrd", "of the next");
  ASSERT_TRUE(store_->upload_file("removed-t", "initrd").value()->finish());
  EXPECT_TRUE(store_->remove("t"));
  EXPECT_TRUE(std::filesystem::exists(paths_.templates() + "/.upload-removed-t/initrd"));
  EXPECT_TRUE(std::filesystem::exists(paths_.templates() + "/.upload-t/initrd"));
}

TEST_F(TemplateStoreTest, RefusesNamesThatArePaths) {
  for (const char* name : {"", "..", ".x", "a/b", "A", "../../etc", "a b"}) {
    EXPECT_FALSE(store_->upload_file(name, "vmlinux")) << name;
    EXPECT_FALSE(store_->get(name)) << name;
    EXPECT_FALSE(store_->remove(name)) << name;
  }
  EXPECT_FALSE(store_->upload_file("t", "../vmlinux"));
}

TEST_F(TemplateStoreTest, SaysWhichFieldIsWrong) {
  put_all();
  for (const auto& [bad, word] :
       {std::pair<std::string, std::string>{"{", "object"},
        {"[]", "object"},
        {"{\"format\":3}", "format"},
        {"{\"format\":1,\"name\":7}", "name"},
        {"{\"format\":1,\"name\":\"t\",\"kernel_release\":\"6\",\"vcpus\":17}", "vcpus"},
        {"{\"format\":1,\"name\":\"t\",\"kernel_release\":\"6\",\"vcpus\":1,\"memory_mib\":65}", "memory_mib"}}) {
    const Result<Template> t = store_->commit("t", bad);
    ASSERT_FALSE(t);
    EXPECT_EQ(t.error().kind(), ErrorKind::kInvalid);
    EXPECT_NE(t.error().message().find(word), std::string::npos) << t.error().message();
  }
}

TEST_F(TemplateStoreTest, ASavedMachineTakesThePlaceOfFilesAndTheOtherWayRound) {
  TemplateInfo saved;
  saved.name = "t";
  saved.kernel_release = "6";
  saved.vcpus = 2;
  saved.memory_mib = 512;
  saved.disk_bytes = 8192;
  saved.saved = "sn-0123456789abc";
  saved.env = {{"A", "b\n\"c\""}, {"D", ""}};
  put_all();
  const Template first = store_->commit("t", json()).value();
  const Result<Template> t = store_->commit_saved("t", saved_template_json(saved));
  ASSERT_TRUE(t) << t.error().to_string();
  EXPECT_EQ(t->info.saved, saved.saved);
  EXPECT_EQ(t->info.env, saved.env);
  EXPECT_EQ(t->info.memory_mib, 512u);
  EXPECT_TRUE(t->info.files.empty());
  EXPECT_NE(t->digest, first.digest);
  EXPECT_EQ(store_->list().size(), 1u);
  EXPECT_TRUE(store_->keep_needed_disks({}));
  EXPECT_TRUE(images_->names(ImageSpace::kTemplate)->empty());
  put_all();
  EXPECT_EQ(store_->commit("t", saved_template_json(saved)).error().kind(), ErrorKind::kInvalid) << "it is not uploaded";
  EXPECT_EQ(store_->commit("t", json()).value().digest, first.digest);
  saved.saved = "../../etc";
  EXPECT_EQ(parse_template_json(saved_template_json(saved)).error().kind(), ErrorKind::kInvalid);
}

TEST_F(TemplateStoreTest, RemovesAndSweeps) {
  put_all();
  ASSERT_TRUE(store_->commit("t", json()));
  ASSERT_TRUE(store_->remove("t"));
  EXPECT_EQ(store_->remove("t").error().kind(), ErrorKind::kNotFound);
  put("initrd", "left behind");
  ASSERT_TRUE(make_directories(paths_.templates() + "/.saved-t"));
  store_->sweep();
  EXPECT_TRUE(std::filesystem::is_empty(paths_.templates()));
}

}  // namespace
}  // namespace ramet::host
