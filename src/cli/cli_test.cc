// The parts of the command line that need no server.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/api_client.h"
#include "cli/complete.h"
#include "cli/copy_paths.h"
#include "cli/doctor.h"
#include "cli/exec_reader.h"
#include "cli/exit_codes.h"
#include "cli/text.h"
#include "cli/tree_view.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;

TEST(Text, Numbers) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((1ull << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(5ull << 40), "5.0 TiB");
  EXPECT_EQ(format_ms(0.836), "0.84 ms");
  EXPECT_EQ(format_ms(76.4), "76 ms");
  EXPECT_EQ(format_ms(3210), "3.2 s");
  EXPECT_EQ(format_span(59), "59s");
  EXPECT_EQ(format_span(3600 * 47), "47h");
  EXPECT_EQ(format_span(-5), "0s");
  EXPECT_EQ(parse_time("2026-09-21T14:13:20.123Z"), 1'790'000'000);
  EXPECT_FALSE(parse_time("yesterday"));
}

TEST(Text, WordsOfPeople) {
  EXPECT_EQ(parse_duration("90").value(), 90u);
  EXPECT_EQ(parse_duration("15m").value(), 900u);
  EXPECT_EQ(parse_duration("1d").value(), 86400u);
  EXPECT_FALSE(parse_duration("1w"));
  EXPECT_FALSE(parse_duration("99999999999999999d"));
  EXPECT_EQ(parse_mib("2G").value(), 2048u);
  EXPECT_EQ(parse_mib("512").value(), 512u);
  EXPECT_FALSE(parse_mib("G"));
  EXPECT_EQ(parse_pairs({"a=b=c"}, "label")->at("a"), "b=c");
  EXPECT_FALSE(parse_pairs({"=b"}, "label"));
}

TEST(Text, AGuestCannotDriveTheTerminal) {
  EXPECT_EQ(printable("a\033[2Jb\n"), "a^[[2Jb^J");
  EXPECT_EQ(printable("a\033[2Jb\r\n\tc", Lines::kKeep), "a^[[2Jb\n\tc");
}

TEST(Table, AlignsByWhatIsSeen) {
  Table t({{"NAME", Align::kLeft}, {"N", Align::kRight}});
  t.add({"\033[1mää\033[0m", "1"});
  t.add({"abcde", "22"});
  EXPECT_EQ(t.render(), "NAME    N\n\033[1mää\033[0m      1\nabcde  22\n");
}

TEST(Tree, DrawsBranches) {
  const auto node = [](const char* id, json::array children) {
    return json::object{{"id", id},
                        {"state", "running"},
                        {"created_at", "1970-01-01T00:00:00.000Z"},
                        {"labels", json::object()},
                        {"timing", json::object{{"fork_ms", 1.5}, {"total_ms", 20}}},
                        {"ram_diverged_bytes", 2048},
                        {"ram_own_bytes", 1024},
                        {"disk_own_bytes", 0},
                        {"children", std::move(children)}};
  };
  const json::object tree{{"roots", json::array{node("a", {node("b", {node("c", {})}), node("d", {})})}}};
  const std::string text = render_tree(tree, 60, {});
  EXPECT_NE(text.find("\na        running  1m   1.50 ms  20 ms       2.0 KiB  1.0 KiB       0 B\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n|- b "), std::string::npos) << text;
  EXPECT_NE(text.find("\n|  `- c "), std::string::npos) << text;
  EXPECT_NE(text.find("\n`- d "), std::string::npos) << text;
}

TEST(Resolve, IdsPrefixesAndNames) {
  const auto box = [](const char* id, int depth, const char* name) {
    json::object labels;
    if (*name != '\0') labels["name"] = name;
    return json::object{{"id", id}, {"depth", depth}, {"labels", labels}};
  };
  const json::array list{box("sb-3f00", 0, "work"), box("sb-3f11", 1, "work"), box("sb-9c00", 0, "")};
  EXPECT_EQ(resolve_in(list, "sb-3f11").value(), "sb-3f11");
  EXPECT_EQ(resolve_in(list, "9c").value(), "sb-9c00");
  EXPECT_EQ(resolve_in(list, "sb-9").value(), "sb-9c00");
  EXPECT_EQ(resolve_in(list, "work").value(), "sb-3f00");  // its fork inherited the label
  EXPECT_EQ(resolve_in(list, "3f").error().kind(), ErrorKind::kConflict);
  EXPECT_EQ(resolve_in(list, "77").error().kind(), ErrorKind::kNotFound);
}

TEST(Url, TakesSocketsAndLoopback) {
  EXPECT_EQ(parse_url("unix:///run/x.sock")->unix_path, "/run/x.sock");
  EXPECT_EQ(parse_url("/run/x.sock")->url(), "unix:///run/x.sock");
  EXPECT_EQ(parse_url("http://127.0.0.1:80/")->url(), "http://127.0.0.1:80");
  EXPECT_EQ(parse_url("http://[::1]:80")->host, "::1");
  for (const char* bad :
       {"", "127.0.0.1:80", "http://x", "http://x:0", "http://x:99999", "http://x:1/y", "unix://rel", "https://x:1"})
    EXPECT_FALSE(parse_url(bad)) << bad;
}

TEST(CopyPaths, KnowWhatIsWhere) {
  EXPECT_EQ(parse_copy_place("3f:/a").sandbox, "3f");
  EXPECT_EQ(parse_copy_place("3f:a").path, "/home/user/a");
  EXPECT_EQ(parse_copy_place("./3f:a").sandbox, "");
  EXPECT_EQ(parse_copy_place("dir/x:y").sandbox, "");
  EXPECT_EQ(copy_target("a/b/", "/srv", true), "/srv/b");
  EXPECT_EQ(copy_target("a/b", "/srv/", false), "/srv/b");
  EXPECT_EQ(copy_target("a/b", "/srv/c", false), "/srv/c");
  EXPECT_EQ(copy_target(".", "/srv", true), "/srv");
}

TEST(ExitCodes, EveryKindIsInTheTable) {
  std::set<int> listed;
  for (const ExitRow& row : exit_rows()) listed.insert(row.status);
  for (int kind = 0; kind <= static_cast<int>(ErrorKind::kInternal); kind++)
    EXPECT_TRUE(listed.contains(exit_status(static_cast<ErrorKind>(kind)))) << kind;
}

TEST(Completion, FollowsTheCommandLine) {
  using Argument = CommandShape::Argument;
  const CommandShape root{
      "ramet",
      {"--json"},
      {{"exec", {"--tty", "-t"}, {}, Argument::kSandbox},
       {"cp", {}, {}, Argument::kSandboxOrFile},
       {"template", {}, {{"ls", {}, {}, Argument::kNone}, {"rm", {}, {}, Argument::kTemplate}}, Argument::kNone}},
      Argument::kNone};
  const CompletionSources sources{[] {
                                    return std::vector<std::string>{"sb-1", "sb-2"};
                                  },
                                  [] { return std::vector<std::string>{"base"}; }};
  const auto words = [&](std::vector<std::string> w) { return complete(root, w, sources); };
  EXPECT_EQ(words({"e"}), (std::vector<std::string>{"exec"}));
  EXPECT_EQ(words({"exec", "sb-2"}), (std::vector<std::string>{"sb-2"}));
  EXPECT_EQ(words({"exec", "-"}), (std::vector<std::string>{"--tty", "-t", "--json"}));
  EXPECT_EQ(words({"exec", "sb-1", "--", "l"}), (std::vector<std::string>{"@files"}));
  EXPECT_EQ(words({"template", ""}), (std::vector<std::string>{"ls", "rm"}));
  EXPECT_EQ(words({"template", "rm", ""}), (std::vector<std::string>{"base"}));
  EXPECT_EQ(words({"cp", "sb-1"}), (std::vector<std::string>{"sb-1:", "@files"}));
}

TEST(Base64, DecodesAndRefuses) {
  EXPECT_EQ(base64_decode("/yE="), "\xff!");
  EXPECT_EQ(base64_decode(""), "");
  EXPECT_FALSE(base64_decode("a b"));
}

TEST(Doctor, ReadsMemoryAndMounts) {
  EXPECT_EQ(check_memory("MemTotal:       16384000 kB\nMemFree: 1 kB\nMemAvailable:    8192000 kB\n").level, Level::kOk);
  EXPECT_EQ(check_memory("MemTotal: 2048000 kB\nMemAvailable: 512000 kB\n").level, Level::kWarn);
  const Finding none = check_cgroup("tmpfs /sys/fs/cgroup tmpfs rw 0 0\n", "/sys/fs/cgroup");
  EXPECT_EQ(none.level, Level::kWarn);
  EXPECT_NE(none.hint.find("mount -t cgroup2"), std::string::npos);
}

TEST(Doctor, FileSystemOfTheStateIsTriedForReal) {
  const Finding f = check_file_system("/tmp/does/not/exist/yet");
  EXPECT_NE(f.level, Level::kFail) << f.text;
  EXPECT_EQ(check_file_system("/proc").level, Level::kFail);
}

}  // namespace
}  // namespace ramet::cli
