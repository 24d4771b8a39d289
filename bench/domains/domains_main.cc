// bench_domains - does the time of an answer tell a tenant what another one has? Two tenants before one public domain, in one
// process as in the daemon. For each request: contents that the other tenant has (never read since the store was opened; or
// read, decoded and cached) in turn with contents that nobody has, in random order, each asked for once. A rank test says
// whether the two series differ. Two rows more show what it can see: nobody's beside nobody's (noise), and the tenant's own
// contents, where there is a difference.
//
// Exit status 1: a private row differs, the noise does, or the own contents' difference was not seen: |z| against kLimit.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <random>

#include "base/clock.h"
#include "rank_test.h"
#include "report.h"
#include "requests.h"

namespace {

using namespace ramet;
using namespace ramet::bench;

// Of 20 rows without any difference one in some 800 runs is beyond it.
constexpr double kLimit = 4;

enum class Whose { kNobodys, kOthers, kOthersAndRead, kOwn, kOwnAndRead };
bool is_foreign(Whose whose) { return whose < Whose::kOwn; }

struct World {
  Tenant common;
  Tenant other{&common}, asker{&common};
};

// Contents of one kind, and where they are.
class Side {
 public:
  Side(World& world, Whose whose, size_t count, uint64_t seed) : whose_(whose) {
    for (size_t i = 0; i < count; i++) contents_.emplace_back(seed << 32 | i);
    if (whose == Whose::kNobodys) return;
    Tenant& owner = is_foreign(whose) ? world.other : world.asker;
    std::vector<std::shared_ptr<host::OpenImage>> images;
    for (const Content& content : contents_)
      images.push_back(owner.keep("image-" + std::to_string(seed) + "-" + std::to_string(images.size()), content));
    owner.drop_from_page_cache();
    if (whose == Whose::kOthers || whose == Whose::kOwn) return;
    for (size_t i = 0; i < count; i++) owner.read(images[i], contents_[i]);
  }
  double time_us(Request& request, Tenant& asker, size_t n) const {
    const Content& content = contents_[n];
    request.prepare(asker, content);
    const int64_t begin = monotonic_ns();
    const Answer answer = request.ask(asker, content);
    const int64_t end = monotonic_ns();
    request.clean_up(asker);
    if (answer != Answer::kStored && (answer == Answer::kNotFound) != is_foreign(whose_))
      die(std::string(request.name()) + ": answered what is not the asker's, or not what is");
    return static_cast<double>(end - begin) / 1000;
  }

 private:
  const Whose whose_;
  std::vector<Content> contents_;
};

struct Comparison {
  const char* name;
  Whose measured, floor;
  bool differs;  // so it must
};

std::string verdict(const RankTest& test, const Row& row) {
  char text[120];
  std::snprintf(text, sizeof text, "p95 %.4g / %.4g, faster in %.3f of pairs, z %+.1f", row.measured.percentile(95),
                row.floor.percentile(95), test.share_less, test.z);
  return text;
}

void compare(Request& request, const Comparison& comparison, size_t samples, Report& report) {
  World world;
  const Side measured(world, comparison.measured, samples, 1), floor(world, comparison.floor, samples, 2);
  std::vector<size_t> turns(2 * samples);
  std::iota(turns.begin(), turns.end(), 0);
  std::ranges::shuffle(turns, std::mt19937_64(5));
  Row row{std::string(request.name()) + ": " + comparison.name, "us", {}, {}, ""};
  for (const size_t turn : turns) {
    const bool first = turn < samples;
    (first ? row.measured : row.floor).add((first ? measured : floor).time_us(request, world.asker, turn % samples));
  }
  const RankTest test = rank_test(row.measured.samples, row.floor.samples);
  row.note = verdict(test, row);
  report.add(row);
  if ((std::abs(test.z) > kLimit) != comparison.differs)
    report.fail(row.name, comparison.differs ? "a difference that is there was not seen" : "the times differ");
}

void compare_all(Request& request, size_t samples, Report& report) {
  const bool by_block = std::string_view(request.name()).starts_with("block");
  const Comparison own = by_block ? Comparison{"own, read before / own", Whose::kOwnAndRead, Whose::kOwn, true}
                                  : Comparison{"own / nobody's", Whose::kOwn, Whose::kNobodys, true};
  for (const Comparison& comparison : {Comparison{"another's / nobody's", Whose::kOthers, Whose::kNobodys, false},
                                       {"another's, read / nobody's", Whose::kOthersAndRead, Whose::kNobodys, false},
                                       {"nobody's / nobody's", Whose::kNobodys, Whose::kNobodys, false},
                                       own})
    compare(request, comparison, samples, report);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Whether times tell one tenant what another one has.");
  std::string json;
  size_t samples = 500;
  app.add_option("--json", json, "write rows to this file");
  app.add_option("--n", samples, "contents on each side of a comparison")->capture_default_str()->check(CLI::Range(20, 500));
  CLI11_PARSE(app, argc, argv);
  Report report("domains", json);
  for (const std::unique_ptr<Request>& request : all_requests()) compare_all(*request, samples, report);
  return report.finish();
}
