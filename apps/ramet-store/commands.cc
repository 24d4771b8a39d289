#include "commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "chunk/directory_storage.h"
#include "chunk/maintenance.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "commit/catalogue.h"
#include "commit/raw_image.h"

namespace ramet::store_tool {
namespace {

namespace json = boost::json;
using cli::format_bytes;

Status must_exist(const Place& place) {
  if (std::error_code error; std::filesystem::is_directory(place.packs(), error)) return {};
  return tl::unexpected<Error>(Error(ErrorKind::kNotFound, "there is no store in " + place.directory)
                                   .with_hint("`ramet-store --store DIR import FILE NAME` makes one"));
}

struct Open {
  std::unique_ptr<chunk::Store> store;
  commit::Catalogue catalogue;
};

enum class Missing { kIsAnError, kIsMade };
Result<Open> open(const Place& place, Missing missing = Missing::kIsAnError) {
  if (missing == Missing::kIsAnError) TRY(must_exist(place));
  TRY_ASSIGN(std::unique_ptr<chunk::DirectoryStorage> packs, chunk::DirectoryStorage::open(place.packs()));
  TRY_ASSIGN(std::unique_ptr<chunk::Store> store, chunk::Store::open(std::move(packs), place.index(), {}));
  TRY_ASSIGN(commit::Catalogue catalogue, commit::Catalogue::open(place.images()));
  return Open{std::move(store), std::move(catalogue)};
}

void print(const json::value& value) { std::printf("%s\n", json::serialize(value).c_str()); }

struct Content {
  uint64_t chunks = 0, blocks = 0;  // that are not all zero
};
Result<Content> content_of(image::Manifest& manifest, const chunk::Store& store) {
  Content content;
  for (uint64_t n = 0; n < manifest.chunks(); n++) {
    TRY_ASSIGN(const Digest name, manifest.chunk(n));
    if (name == image::kZeros) continue;
    TRY_ASSIGN(const chunk::Recipe recipe, store.index().recipe(name));
    content.chunks++;
    for (const chunk::Extent& e : recipe.extents) content.blocks += e.frame ? e.blocks : 0;
  }
  return content;
}

// The renewing line on standard error, from sums instead of steps.
class Sums {
 public:
  Sums(std::string what, uint64_t total, bool quiet) : line_(std::move(what), total, quiet) {}
  void reach(uint64_t done) {
    if (done > done_) line_.add(done - done_);
    done_ = done;
  }
  void finish() { line_.done(); }

 private:
  cli::Progress line_;
  uint64_t done_ = 0;
};

void print_problems(const std::vector<chunk::Problem>& problems) {
  for (const chunk::Problem& p : problems) std::printf("%s: %s\n", p.where.c_str(), p.error.to_string().c_str());
}
json::array as_json(const std::vector<chunk::Problem>& problems) {
  json::array out;
  for (const chunk::Problem& p : problems)
    out.push_back({{"where", p.where}, {"kind", kind_name(p.error.kind())}, {"message", p.error.message()}});
  return out;
}

}  // namespace

Status import_image(const Place& place, const std::string& path, const std::string& name, const std::string& parent) {
  TRY(commit::check_image_name(name));
  TRY_ASSIGN(const UniqueFd file, open_file(path, O_RDONLY));
  TRY_ASSIGN(const uint64_t size, file_size(file.get()));
  TRY_ASSIGN(Open o, open(place, Missing::kIsMade));
  if (const Result<image::ManifestRoot> there = o.catalogue.get(name); there || there.error().kind() != ErrorKind::kNotFound)
    return fail(ErrorKind::kExists, "there is an image '" + name + "' already");
  TRY_ASSIGN(const chunk::Index::Totals before, o.store->totals());
  std::optional<image::Manifest> from;
  if (!parent.empty()) {
    TRY_ASSIGN(image::ManifestRoot root, o.catalogue.get(parent));
    from = commit::manifest_in(*o.store, std::move(root));
  }
  Sums progress("import " + name, size, place.quiet);
  chunk::Batch batch = o.store->begin();
  TRY_ASSIGN(const image::ManifestRoot root,
             commit::import_raw(file.get(), batch, from ? &*from : nullptr,
                                [&](const commit::Progress& p) { progress.reach(p.done_bytes); }));
  TRY(batch.commit());
  TRY(o.catalogue.add(name, root));  // while the batch still holds its chunks
  progress.finish();
  TRY_ASSIGN(const chunk::Index::Totals after, o.store->totals());
  const uint64_t bytes = root.blocks * image::kBlockBytes, stored = after.pack_bytes - before.pack_bytes;
  if (place.json)
    print({{"name", name}, {"bytes", bytes}, {"stored_bytes", stored}});
  else
    std::printf("%s: %s, %s of them new in the store\n", name.c_str(), format_bytes(bytes).c_str(),
                format_bytes(stored).c_str());
  return {};
}

Status export_image(const Place& place, const std::string& name, const std::string& path) {
  TRY_ASSIGN(Open o, open(place));
  TRY_ASSIGN(image::ManifestRoot root, o.catalogue.get(name));
  image::Manifest manifest = commit::manifest_in(*o.store, std::move(root));
  const uint64_t bytes = manifest.root().blocks * image::kBlockBytes;
  TRY_ASSIGN(const UniqueFd file, open_file(path, O_RDWR | O_CREAT | O_EXCL, 0600));
  Sums progress("export " + name, bytes, place.quiet);
  Status done =
      commit::export_raw(manifest, *o.store, file.get(), [&](const commit::Progress& p) { progress.reach(p.done_bytes); });
  if (done && ::fsync(file.get()) < 0) done = fail_errno("sync " + path);
  if (!done) {
    ::unlink(path.c_str());  // made by us a moment ago
    return done;
  }
  progress.finish();
  if (place.json) print({{"name", name}, {"file", path}, {"bytes", bytes}});
  return {};
}

Status list_images(const Place& place) {
  TRY_ASSIGN(const Open o, open(place));
  TRY_ASSIGN(const std::vector<std::string> names, o.catalogue.names());
  json::array rows;
  cli::Table table({{"IMAGE"}, {"KIND"}, {"SIZE", cli::Align::kRight}});
  for (const std::string& name : names) {
    TRY_ASSIGN(const image::ManifestRoot root, o.catalogue.get(name));
    const uint64_t bytes = root.blocks * image::kBlockBytes;
    const char* const kind = root.kind == image::ImageKind::kDisk ? "disk" : "memory";
    rows.push_back({{"name", name}, {"kind", kind}, {"bytes", bytes}});
    table.add({name, kind, format_bytes(bytes)});
  }
  if (place.json)
    print(rows);
  else
    std::fputs(table.render().c_str(), stdout);
  return {};
}

Status show_image(const Place& place, const std::string& name) {
  TRY_ASSIGN(Open o, open(place));
  TRY_ASSIGN(image::ManifestRoot root, o.catalogue.get(name));
  image::Manifest manifest = commit::manifest_in(*o.store, std::move(root));
  TRY_ASSIGN(const Content content, content_of(manifest, *o.store));
  const uint64_t bytes = manifest.root().blocks * image::kBlockBytes, used = content.blocks * image::kBlockBytes;
  const size_t metadata = image::encode_manifest_root(manifest.root()).size();
  if (place.json)
    print({{"name", name},
           {"bytes", bytes},
           {"chunks", manifest.chunks()},
           {"nonzero_chunks", content.chunks},
           {"nonzero_bytes", used},
           {"manifest_bytes", metadata}});
  else
    std::printf("%s: %s, %s not zero\n%llu of %llu chunks have content; manifest %s\n", name.c_str(),
                format_bytes(bytes).c_str(), format_bytes(used).c_str(), static_cast<unsigned long long>(content.chunks),
                static_cast<unsigned long long>(manifest.chunks()), format_bytes(metadata).c_str());
  return {};
}

Status diff_images(const Place& place, const std::string& a, const std::string& b) {
  TRY_ASSIGN(Open o, open(place));
  TRY_ASSIGN(image::ManifestRoot root_a, o.catalogue.get(a));
  TRY_ASSIGN(image::ManifestRoot root_b, o.catalogue.get(b));
  image::Manifest in_a = commit::manifest_in(*o.store, std::move(root_a)),
                  in_b = commit::manifest_in(*o.store, std::move(root_b));
  json::array rows;
  TRY(image::visit_differences(in_a, in_b, [&](uint64_t n, const Digest& x, const Digest& y) {
    rows.push_back(
        {{"chunk", n}, {"a", x == image::kZeros ? "zeros" : x.to_hex()}, {"b", y == image::kZeros ? "zeros" : y.to_hex()}});
  }));
  if (place.json) {
    print(rows);
    return {};
  }
  for (const json::value& row : rows)
    std::printf("chunk %llu  %.12s  %.12s\n", static_cast<unsigned long long>(row.at("chunk").as_uint64()),
                row.at("a").as_string().c_str(), row.at("b").as_string().c_str());
  std::printf("%zu of %llu chunks differ\n", rows.size(), static_cast<unsigned long long>(in_a.chunks()));
  return {};
}

Status remove_image(const Place& place, const std::string& name) {
  TRY_ASSIGN(Open o, open(place));
  TRY(o.catalogue.remove(name));
  if (place.json) print({{"name", name}});
  return {};
}

namespace {

Result<chunk::Store::LiveSet> needed_by_images(const Open& o) {
  TRY_ASSIGN(const std::vector<std::string> names, o.catalogue.names());
  chunk::Store::LiveSet live;
  for (const std::string& name : names) {
    // An image that cannot be read stops this: what it needs is not known, and nothing of it may be lost.
    TRY_ASSIGN(image::ManifestRoot root, o.catalogue.get(name));
    for (const Digest& page : root.pages)
      if (page != image::kZeros) live.chunks.insert(page);
    image::Manifest manifest = commit::manifest_in(*o.store, std::move(root));
    for (uint64_t n = 0; n < manifest.chunks(); n++) {
      TRY_ASSIGN(const Digest chunk, manifest.chunk(n));
      if (chunk != image::kZeros) live.chunks.insert(chunk);
    }
  }
  return live;
}

}  // namespace

Status collect_garbage(const Place& place) {
  TRY_ASSIGN(Open o, open(place));
  TRY_ASSIGN(const chunk::Store::Collected done, o.store->collect([&] { return needed_by_images(o); }));
  if (place.json)
    print({{"chunks_removed", done.chunks_removed},
           {"packs_removed", done.packs_removed},
           {"packs_written", done.packs_written},
           {"bytes_before", done.bytes_before},
           {"bytes_after", done.bytes_after}});
  else
    std::printf("%llu chunks removed; %s now, %s before\n", static_cast<unsigned long long>(done.chunks_removed),
                format_bytes(done.bytes_after).c_str(), format_bytes(done.bytes_before).c_str());
  return {};
}

Status show_stats(const Place& place) {
  TRY_ASSIGN(Open o, open(place));
  TRY_ASSIGN(const chunk::Index::Totals totals, o.store->totals());
  TRY_ASSIGN(const std::vector<std::string> names, o.catalogue.names());
  uint64_t logical = 0;
  for (const std::string& name : names) {
    TRY_ASSIGN(image::ManifestRoot root, o.catalogue.get(name));
    image::Manifest manifest = commit::manifest_in(*o.store, std::move(root));
    TRY_ASSIGN(const Content content, content_of(manifest, *o.store));
    logical += content.blocks * image::kBlockBytes;
  }
  if (place.json)
    print({{"images", names.size()},
           {"logical_bytes", logical},
           {"literal_bytes", totals.literal_blocks * image::kBlockBytes},
           {"stored_bytes", totals.pack_bytes},
           {"packs", totals.packs},
           {"frames", totals.frames},
           {"chunks", totals.chunks}});
  else
    std::printf("%zu images, %s that are not zero\n%s literal, stored in %s\n%llu packs, %llu frames, %llu chunks\n",
                names.size(), format_bytes(logical).c_str(), format_bytes(totals.literal_blocks * image::kBlockBytes).c_str(),
                format_bytes(totals.pack_bytes).c_str(), static_cast<unsigned long long>(totals.packs),
                static_cast<unsigned long long>(totals.frames), static_cast<unsigned long long>(totals.chunks));
  return {};
}

Result<bool> verify_store(const Place& place) {
  TRY_ASSIGN(const Open o, open(place));
  TRY_ASSIGN(const chunk::VerifyReport report, chunk::verify(*o.store));
  if (place.json) {
    print({{"packs", report.packs},
           {"frames", report.frames},
           {"chunks", report.chunks},
           {"problems", as_json(report.problems)}});
  } else {
    print_problems(report.problems);
    std::printf("%llu packs, %llu frames, %llu chunks: %zu problems\n", static_cast<unsigned long long>(report.packs),
                static_cast<unsigned long long>(report.frames), static_cast<unsigned long long>(report.chunks),
                report.problems.size());
  }
  return report.problems.empty();
}

Result<bool> rebuild(const Place& place) {
  TRY(must_exist(place));
  TRY_ASSIGN(const std::unique_ptr<chunk::DirectoryStorage> packs, chunk::DirectoryStorage::open(place.packs()));
  TRY_ASSIGN(const chunk::RebuildReport report, chunk::rebuild_index(*packs, place.index()));
  if (place.json) {
    print({{"packs", report.packs}, {"left_out", as_json(report.left_out)}});
  } else {
    print_problems(report.left_out);
    std::printf("index made again from %llu packs, %zu left out\n", static_cast<unsigned long long>(report.packs),
                report.left_out.size());
  }
  return report.left_out.empty();
}

}  // namespace ramet::store_tool
