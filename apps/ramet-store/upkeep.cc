// The store as a whole: what is in it, is it whole, what can go.
#include <cstdio>

#include "chunk/directory_storage.h"
#include "chunk/maintenance.h"
#include "cli/text.h"
#include "commit/live_chunks.h"
#include "commit/usage.h"
#include "open_store.h"

namespace ramet::store_tool {
namespace {

namespace json = boost::json;
using cli::format_bytes;

void print_problems(const std::vector<chunk::Problem>& problems) {
  for (const chunk::Problem& p : problems) std::printf("%s: %s\n", p.where.c_str(), p.error.to_string().c_str());
}
json::array as_json(const std::vector<chunk::Problem>& problems) {
  json::array out;
  for (const chunk::Problem& p : problems)
    out.push_back({{"where", p.where}, {"kind", kind_name(p.error.kind())}, {"message", p.error.message()}});
  return out;
}

struct Stats {
  chunk::Index::Totals totals;
  commit::Usage usage;
};
// All of one moment: blocks that a collection moved while they are counted would count as dead.
Result<Stats> stats_of(const ReadStore& o) {
  TRY_ASSIGN(const chunk::Index::Snapshot snapshot, o.store->index().hold_still());
  TRY_ASSIGN(const chunk::Index::Totals totals, o.store->totals());
  TRY_ASSIGN(const commit::Usage usage, commit::usage_of(*o.store, o.everybody, o.snapshots_if_any()));
  return Stats{totals, usage};
}

}  // namespace

Status collect_garbage(const Place& place) {
  TRY_ASSIGN(OpenStore o, open_store(place));
  TRY_ASSIGN(const chunk::Store::Collected done,
             o.store->collect([&] { return commit::live_chunks(*o.store, o.everybody, o.snapshots_if_any()); }));
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
  TRY_ASSIGN(const ReadStore o, open_to_read(place));
  TRY_ASSIGN(const Stats stats, beside_others([&] { return stats_of(o); }));
  const auto& [totals, usage] = stats;
  if (place.json) {
    print({{"images", usage.images},
           {"unfinished", usage.unfinished},
           {"snapshots", usage.snapshots},
           {"logical_bytes", usage.logical_bytes},
           {"unique_bytes", usage.unique_bytes},
           {"shared_bytes", usage.shared_bytes},
           {"dead_bytes", usage.dead_bytes},
           {"stored_bytes", usage.stored_bytes},
           {"dead_stored_bytes", usage.dead_stored_bytes},
           {"packs", totals.packs},
           {"frames", totals.frames},
           {"chunks", totals.chunks}});
    return {};
  }
  cli::Table table({{"BYTES"}, {"", cli::Align::kRight}, {""}});
  table.add({"logical", format_bytes(usage.logical_bytes), "in all images and snapshots, zeros left out"});
  table.add({"unique", format_bytes(usage.unique_bytes), "needed by one image or snapshot"});
  table.add({"shared", format_bytes(usage.shared_bytes), "needed by several, there once"});
  table.add({"dead", format_bytes(usage.dead_bytes), "needed by none"});
  table.add({"stored", format_bytes(usage.stored_bytes), "on the disk, compressed"});
  table.add({"dead stored", format_bytes(usage.dead_stored_bytes), "of these, what gc can give back"});
  std::fputs(table.render().c_str(), stdout);
  std::printf("%llu images, %llu unfinished, %llu snapshots; %llu packs, %llu frames, %llu chunks\n",
              static_cast<unsigned long long>(usage.images), static_cast<unsigned long long>(usage.unfinished),
              static_cast<unsigned long long>(usage.snapshots), static_cast<unsigned long long>(totals.packs),
              static_cast<unsigned long long>(totals.frames), static_cast<unsigned long long>(totals.chunks));
  return {};
}

Result<bool> verify_store(const Place& place) {
  TRY_ASSIGN(const ReadStore o, open_to_read(place));
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
