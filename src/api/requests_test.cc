// Request bodies and targets: what is taken, and what a refusal says.
#include "api/requests.h"

#include <gtest/gtest.h>

#include "api/router.h"

namespace ramet::api {
namespace {

std::string refusal(const auto& result) { return result ? "accepted" : result.error().message(); }

TEST(Requests, CreateTakesEveryField) {
  const auto r = decode_create(
      R"({"template":"base","vcpus":2,"memory_mib":512,"ttl_seconds":60,"idle_seconds":90,"labels":{"a":"b"},"env":{"X":"1"}})");
  ASSERT_TRUE(r) << refusal(r);
  EXPECT_EQ(r->template_name, "base");
  EXPECT_EQ(r->vcpus, 2u);
  EXPECT_EQ(r->memory_mib, 512u);
  EXPECT_EQ(r->ttl_seconds, 60u);
  EXPECT_EQ(r->idle_seconds, 90u);
  EXPECT_EQ(r->labels.at("a"), "b");
  EXPECT_EQ(r->env.at("X"), "1");
}

TEST(Requests, UnknownFieldIsRefusedByName) {
  EXPECT_EQ(refusal(decode_create(R"({"template":"base","memroy_mib":1})")),
            "field `memroy_mib` is not known here; known are `template`, `snapshot`, `vcpus`, `memory_mib`, `ttl_seconds`, "
            "`idle_seconds`, `labels`, `env`");
}

TEST(Requests, RollbackNamesASnapshot) {
  EXPECT_EQ(decode_rollback(R"({"snapshot":"warm"})").value(), "warm");
  EXPECT_EQ(refusal(decode_rollback("{}")), "field `snapshot` is missing");
}

TEST(Requests, SnapshotsTakeEveryField) {
  const Result<host::SnapshotOptions> o =
      decode_snapshot(R"({"name":"warm","strict":false,"keep_seconds":0,"labels":{"a":"b"}})");
  ASSERT_TRUE(o);
  EXPECT_EQ(o->name, "warm");
  EXPECT_EQ(o->strictness, host::ForkStrictness::kLoose);
  EXPECT_EQ(o->keep_seconds, 0u);
  EXPECT_EQ(o->labels.at("a"), "b");
  EXPECT_EQ(decode_snapshot("")->strictness, host::ForkStrictness::kStrict);
  EXPECT_EQ(refusal(decode_snapshot(R"({"keep_seconds":31536001})")),
            "field `keep_seconds` must be an integer from 0 to 31536000, not `31536001`");
  const Result<host::SnapshotPatch> patch = decode_snapshot_patch(R"({"name":""})");
  ASSERT_TRUE(patch);
  EXPECT_EQ(patch->name, "");
  EXPECT_FALSE(patch->keep_seconds);
}

TEST(Requests, NumbersOutOfRangeNameValueAndLimit) {
  EXPECT_EQ(refusal(decode_create(R"({"template":"base","vcpus":17})")),
            "field `vcpus` must be an integer from 1 to 16, not `17`");
  EXPECT_EQ(refusal(decode_fork(R"({"n":0})")), "field `n` must be an integer from 1 to 100, not `0`");
  EXPECT_EQ(refusal(decode_fork(R"({"n":1.5})")), "field `n` must be an integer from 1 to 100, not `1.5E0`");
  EXPECT_EQ(refusal(decode_fork(R"({"n":99999999999999999999})")), "field `n` must be an integer from 1 to 100, not `1E20`");
}

TEST(Requests, MissingAndWrongTypesAreNamed) {
  constexpr const char* kEither = "either field `template` or field `snapshot` says what the sandbox is made from";
  EXPECT_EQ(refusal(decode_create("{}")), kEither);
  EXPECT_EQ(refusal(decode_create(R"({"template":"base","snapshot":"warm"})")), kEither);
  EXPECT_EQ(refusal(decode_create(R"({"snapshot":"warm","memory_mib":512})")),
            "fields `vcpus` and `memory_mib` do not go with `snapshot`: the sandbox is as large as that");
  EXPECT_EQ(refusal(decode_create(R"({"template":5})")), "field `template` must be a string, not `5`");
  EXPECT_EQ(refusal(decode_create(R"({"template":"Base"})")),
            "template name `Base` must be 1 to 63 of a-z, 0-9, `.`, `_`, `-`, starting with a letter or digit");
  EXPECT_EQ(refusal(decode_create(R"({"template":"base","labels":{"a":1}})")), "field `labels.a` must be a string, not `1`");
  EXPECT_EQ(refusal(decode_create(R"({"template":"base","env":{"A=B":"1"}})")),
            "field `env.A=B`: the name of a variable may not hold `=`");
}

TEST(Requests, BodiesThatAreNotJsonObjectsAreRefused) {
  EXPECT_NE(refusal(decode_fork("[1]")).find("must be a JSON object"), std::string::npos);
  EXPECT_NE(refusal(decode_fork("{")).find("is not JSON"), std::string::npos);
  EXPECT_NE(refusal(decode_fork(R"({"n":1} x)")).find("is not JSON"), std::string::npos);
  EXPECT_NE(refusal(decode_fork(std::string(100'000, '['))).find("nests deeper than 16"), std::string::npos);
  EXPECT_NE(refusal(decode_fork(std::string((1 << 20) + 1, ' '))).find("the limit for JSON is 1048576"), std::string::npos);
}

TEST(Requests, EmptyForkBodyMeansOneStrictChild) {
  const auto r = decode_fork("");
  ASSERT_TRUE(r);
  EXPECT_EQ(r->count, 1u);
  EXPECT_EQ(r->mode, host::ForkMode::kAll);
  EXPECT_EQ(r->strictness, host::ForkStrictness::kStrict);
  EXPECT_FALSE(r->labels.has_value());
}

TEST(Requests, ExecNeedsExactlyOneCommand) {
  EXPECT_NE(refusal(decode_exec("{}")).find("neither `command` nor `argv`"), std::string::npos);
  EXPECT_NE(refusal(decode_exec(R"({"command":"a","argv":["b"]})")).find("both `command` and `argv`"), std::string::npos);
  EXPECT_EQ(refusal(decode_exec(R"({"argv":[]})")), "field `argv` has 0 entries, allowed are 1 to 4096");
  EXPECT_EQ(refusal(decode_exec(R"({"argv":[""]})")), "field `argv`: the first entry, the program, is empty");
  EXPECT_TRUE(decode_exec(R"({"pty":{"rows":24,"cols":80}})"));
}

TEST(Requests, ExecStdinMayHoldAnyByte) {
  const auto r = decode_exec(R"({"command":"cat","stdin":"AP8=","stdin_encoding":"base64"})");
  ASSERT_TRUE(r);
  EXPECT_EQ(r->stdin_bytes, std::string("\x00\xff", 2));
  EXPECT_TRUE(r->options.stdin_open);
  EXPECT_FALSE(r->keep_stdin_open);
  EXPECT_EQ(refusal(decode_exec(R"({"command":"cat","stdin":"%","stdin_encoding":"base64"})")), "field `stdin` is not base64");
}

TEST(Requests, ExecLimitsAndContradictions) {
  EXPECT_EQ(refusal(decode_exec(R"({"command":"a","timeout_seconds":0})")),
            "field `timeout_seconds` must be a number above 0E0 and at most 3.1536E7, not `0`");
  EXPECT_EQ(refusal(decode_exec(R"({"command":"a","cwd":"tmp"})")), "field `cwd` must be an absolute path, not `tmp`");
  EXPECT_EQ(refusal(decode_exec(R"({"command":"a","pty":{"rows":0,"cols":1}})")),
            "field `pty`: field `rows` must be an integer from 1 to 65535, not `0`");
  EXPECT_NE(refusal(decode_exec(R"({"command":"a","stream":true,"detach":true})")).find("exclude each other"),
            std::string::npos);
  EXPECT_NE(refusal(decode_exec(R"({"command":"a","stdin_open":true})")).find("`stdin_open` needs"), std::string::npos);
  EXPECT_EQ(decode_exec(R"({"command":"a","timeout_seconds":1.5})")->options.timeout_ms, 1500u);
}

TEST(Requests, TheGuestChoosesTheUserUnlessOneIsNamed) {
  EXPECT_EQ(decode_exec(R"({"command":"id"})")->options.user, "");
  EXPECT_EQ(decode_exec(R"({"command":"id","user":"root"})")->options.user, "root");
  EXPECT_EQ(check_user_name("").value(), "");
  EXPECT_FALSE(check_user_name(std::string(64, 'a')));
}

TEST(Requests, Signals) {
  EXPECT_EQ(decode_signal(R"({"signal":"TERM"})").value(), 15u);
  EXPECT_EQ(decode_signal(R"({"signal":"SIGKILL"})").value(), 9u);
  EXPECT_EQ(decode_signal(R"({"signal":2})").value(), 2u);
  EXPECT_EQ(refusal(decode_signal(R"({"signal":65})")), "signal 65 is not in 1 to 64");
  EXPECT_EQ(refusal(decode_signal(R"({"signal":"NOPE"})")), "signal `NOPE` is not known; give TERM, SIGTERM or 15");
}

TEST(Requests, PathValues) {
  EXPECT_EQ(decode_mode("0644").value(), 0644u);
  EXPECT_FALSE(decode_mode("0999"));
  EXPECT_FALSE(decode_mode("17777"));
  EXPECT_EQ(decode_pid("12").value(), 12u);
  EXPECT_FALSE(decode_pid("0"));
  EXPECT_FALSE(decode_pid("12x"));
  EXPECT_FALSE(check_guest_path("relative", "path"));
  EXPECT_FALSE(check_guest_path("/" + std::string(4095, 'a'), "path"));
  EXPECT_FALSE(check_idempotency_key("with space"));
  EXPECT_TRUE(check_idempotency_key("0f9e-7"));
}

TEST(Router, DecodesPathAndQuery) {
  const auto t = parse_target("/v1/a%2Fb/c?path=/x+y%2Bz&flag=1&empty");
  ASSERT_TRUE(t);
  EXPECT_EQ(t->segments, (std::vector<std::string>{"v1", "a/b", "c"}));
  EXPECT_EQ(t->get("path"), "/x y+z");
  EXPECT_TRUE(t->flag("flag").value());
  EXPECT_FALSE(t->flag("absent").value());
}

TEST(Router, RefusesWhatItCannotDecode) {
  EXPECT_FALSE(parse_target("v1"));
  EXPECT_FALSE(parse_target("/a%"));
  EXPECT_FALSE(parse_target("/a%4"));
  EXPECT_FALSE(parse_target("/a%zz"));
  EXPECT_FALSE(parse_target("/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17"));
  EXPECT_FALSE(parse_target("/a?flag=2")->flag("flag"));
}

TEST(Router, MatchesWholePathsOnly) {
  const auto segments = [](std::string_view t) { return parse_target(t)->segments; };
  const auto found = match_path("/v1/sandboxes/{id}/fork", segments("/v1/sandboxes/ab/fork"));
  ASSERT_TRUE(found);
  EXPECT_EQ((*found)["id"], "ab");
  EXPECT_FALSE(match_path("/v1/sandboxes/{id}", segments("/v1/sandboxes/")));
  EXPECT_FALSE(match_path("/v1/sandboxes/{id}", segments("/v1/sandboxes/a/b")));
  EXPECT_FALSE(match_path("/v1/sandboxes", segments("/v1/sandboxes/a")));
}

}  // namespace
}  // namespace ramet::api
