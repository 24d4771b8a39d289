#include "chunk/testing/recorded_disk.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "chunk/testing/recorded_calls.h"

namespace ramet::chunk::testing {
namespace {

RecordedDisk* recording = nullptr;

std::string parent_of(const std::string& path) { return std::filesystem::path(path).parent_path(); }

// What would be found after a loss of power: replays events, and remembers of each file and name what is sure.
class Remains {
 public:
  using Kind = RecordedDisk::Kind;
  using Event = RecordedDisk::Event;

  void replay(const Event& e) {
    switch (e.kind) {
      case Kind::kCreate: files_.emplace_back(); return change_name({e.path, {}, static_cast<int>(files_.size()) - 1});
      case Kind::kWrite:
      case Kind::kTruncate: return change(file(e.path), e);
      case Kind::kSync: return make_sure(file(e.path));
      case Kind::kRename: return change_name({e.to, e.path, now_.at(e.path)});
      case Kind::kRemove: return change_name({{}, e.path, -1});
      case Kind::kSyncDirectory: return make_names_sure(e.path);
    }
  }

  // Each thing that is not sure happens or not, as `happens` says.
  template <class Happens>
  void write_to(const std::string& directory, Happens&& happens) {
    for (const NameChange& change : unsure_names_)
      if (happens()) apply(sure_names_, change);
    for (const auto& [path, number] : sure_names_) {
      File& f = files_[static_cast<size_t>(number)];
      for (const Event& e : f.unsure)
        if (happens()) apply(f.sure, e);
      std::filesystem::create_directories(directory + "/" + parent_of(path));
      std::ofstream(directory + "/" + path, std::ios::binary) << f.sure;
    }
  }

 private:
  struct File {
    std::string sure;
    std::vector<Event> unsure;  // since the last sync
  };
  struct NameChange {
    std::string made, gone;
    int file;
  };
  using Names = std::map<std::string, int>;

  File& file(const std::string& path) { return files_[static_cast<size_t>(now_.at(path))]; }
  static void apply(std::string& content, const Event& e) {
    if (e.kind == Kind::kTruncate) return content.resize(e.offset);
    content.resize(std::max<size_t>(content.size(), e.offset + e.bytes.size()));
    content.replace(e.offset, e.bytes.size(), e.bytes);
  }
  static void apply(Names& names, const NameChange& change) {
    if (!change.gone.empty()) names.erase(change.gone);
    if (!change.made.empty()) names[change.made] = change.file;
  }
  // A write in pieces, each of which may be lost.
  static void change(File& f, const Event& e) {
    constexpr size_t kPiece = 4096;
    if (e.kind == Kind::kTruncate || e.bytes.size() <= kPiece) return f.unsure.push_back(e);
    for (size_t at = 0; at < e.bytes.size(); at += kPiece)
      f.unsure.push_back({e.kind, e.path, {}, e.offset + at, e.bytes.substr(at, kPiece)});
  }
  void change_name(NameChange change) {
    apply(now_, change);
    unsure_names_.push_back(std::move(change));
  }
  static void make_sure(File& f) {
    for (const Event& e : f.unsure) apply(f.sure, e);
    f.unsure.clear();
  }
  void make_names_sure(const std::string& directory) {
    std::erase_if(unsure_names_, [&](const NameChange& change) {
      if (parent_of(change.made.empty() ? change.gone : change.made) != directory) return false;
      apply(sure_names_, change);
      return true;
    });
  }

  std::vector<File> files_;
  Names now_, sure_names_;
  std::vector<NameChange> unsure_names_;
};

}  // namespace

RecordedDisk::RecordedDisk(std::string directory) : directory_(std::move(directory)) {
  recording = this;
  install_recording_vfs();
}
RecordedDisk::~RecordedDisk() { recording = nullptr; }

RecordedDisk* RecordedDisk::of(std::string_view path) {
  return recording && path.starts_with(recording->directory_ + "/") && !path.ends_with("-shm") ? recording : nullptr;
}

std::string RecordedDisk::inside(std::string_view path) const {
  return std::string(path.size() <= directory_.size() ? std::string_view() : path.substr(directory_.size() + 1));
}

void RecordedDisk::note(Kind kind, std::string_view path, std::string_view to, uint64_t offset, std::string bytes) {
  events_.push_back({kind, inside(path), inside(to), offset, std::move(bytes)});
}

size_t RecordedDisk::room_for(size_t bytes) {
  const uint64_t number = writes_++;
  if (!full_from_ || number < *full_from_) return bytes;
  return number == *full_from_ ? bytes / 2 : 0;
}

void RecordedDisk::leave(size_t steps, Unsynced unsynced, uint64_t seed, const std::string& directory) const {
  Remains remains;
  for (size_t i = 0; i < steps; i++) remains.replay(events_[i]);
  std::mt19937_64 random(seed);
  std::filesystem::create_directories(directory + "/packs");
  remains.write_to(
      directory, [&] { return unsynced == Unsynced::kIsThere || (unsynced == Unsynced::kIsThereInPart && random() % 2 == 0); });
}

}  // namespace ramet::chunk::testing
