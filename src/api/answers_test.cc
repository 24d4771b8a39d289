// What goes out: errors, events, times, text; and what is remembered or let in.
#include <gtest/gtest.h>
#include <zstd.h>

#include <latch>
#include <set>
#include <thread>

#include <boost/json.hpp>

#include "api/console_follow.h"
#include "api/error_table.h"
#include "api/exec_events.h"
#include "api/host_guard.h"
#include "api/idempotency.h"
#include "api/render.h"
#include "api/utf8.h"
#include "api/zstd_reader.h"
#include "base/file.h"

namespace ramet::api {
namespace {

using Kind = host::ExecEvent::Kind;

host::ExecEvent output(Kind kind, std::string data, uint64_t offset) {
  host::ExecEvent e;
  e.kind = kind;
  e.data = std::move(data);
  e.offset = offset;
  return e;
}

TEST(ErrorTable, HasOneRowPerKindAndNoDoubleCode) {
  std::set<std::string_view> codes;
  for (const ErrorRow& row : error_rows()) EXPECT_TRUE(codes.insert(row.code).second) << row.code;
  for (int kind = 0; kind <= static_cast<int>(ErrorKind::kInternal); kind++)
    EXPECT_EQ(row_of_kind(static_cast<ErrorKind>(kind)).code, kind_name(static_cast<ErrorKind>(kind)));
}

TEST(ErrorTable, BodyHasAllFieldsAndIsUtf8) {
  const std::string body = error_body(row_of_code("not_found"), "no \xff here", "", "req_1");
  const boost::json::object error = boost::json::parse(body).at("error").as_object();
  EXPECT_EQ(error.at("code"), "not_found");
  EXPECT_EQ(error.at("message"), "no \xef\xbf\xbd here");
  EXPECT_FALSE(error.at("hint").as_string().empty());
  EXPECT_TRUE(error.at("details").is_object());
  EXPECT_EQ(error.at("request_id"), "req_1");
}

TEST(ErrorTable, ErrnoStandsInDetails) {
  const boost::json::object error = error_object(Error(ErrorKind::kIo, "x", EIO), "req_1");
  EXPECT_EQ(error.at("details").at("errno"), "EIO");
}

TEST(ExecEvents, TextStaysTextWhenACharacterIsCut) {
  ExecEventEncoder e(0, 0);
  EXPECT_EQ(e.encode(output(Kind::kStdout, "a\xc3", 0)), "{\"type\":\"stdout\",\"data\":\"a\",\"offset\":0}\n");
  EXPECT_EQ(e.encode(output(Kind::kStdout, "\xa4z", 2)), "{\"type\":\"stdout\",\"data\":\"\xc3\xa4z\",\"offset\":1}\n");
}

TEST(ExecEvents, OtherBytesAreBase64) {
  ExecEventEncoder e(0, 0);
  EXPECT_EQ(e.encode(output(Kind::kStderr, "\xff!", 0)),
            "{\"type\":\"stderr\",\"data\":\"/yE=\",\"encoding\":\"base64\",\"offset\":0}\n");
}

TEST(ExecEvents, LostOutputIsAGap) {
  ExecEventEncoder e(10, 0);
  EXPECT_EQ(e.encode(output(Kind::kStdout, "x", 15)),
            "{\"type\":\"gap\",\"stream\":\"stdout\",\"bytes\":5}\n{\"type\":\"stdout\",\"data\":\"x\",\"offset\":15}\n");
}

TEST(ExecEvents, ExitFlushesWhatWasKept) {
  ExecEventEncoder e(0, 0);
  EXPECT_EQ(e.encode(output(Kind::kStdout, "\xc3", 0)), "");
  host::ExecEvent exit;
  exit.kind = Kind::kExit;
  exit.exit.signal = 9;
  const std::string lines = e.encode(exit);
  EXPECT_NE(lines.find("\"encoding\":\"base64\""), std::string::npos);
  EXPECT_NE(lines.find("\"exit_code\":137,\"signal\":\"SIGKILL\""), std::string::npos);
}

TEST(Utf8, KnowsTheEdges) {
  EXPECT_TRUE(is_utf8("z\xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\xb1"));
  EXPECT_FALSE(is_utf8("\xc0\x80"));          // overlong
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));      // surrogate
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80"));  // above U+10FFFF
  EXPECT_EQ(incomplete_utf8_tail("a\xf0\x9f\x8c"), 3u);
  EXPECT_EQ(incomplete_utf8_tail("a\xe2\x82\xac"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("a\xff"), 0u);
}

TEST(Base64, RoundTripAndRefusals) {
  for (const std::string& s :
       {std::string(), std::string("f"), std::string("fo"), std::string("foo"), std::string("\0\xff\x80", 3)})
    EXPECT_EQ(base64_decode(base64_encode(s)), s);
  EXPECT_FALSE(base64_decode("Zg"));
  EXPECT_FALSE(base64_decode("Z==="));
  EXPECT_FALSE(base64_decode("Zg==Zg=="));
  EXPECT_FALSE(base64_decode("Zm 9"));
}

TEST(Render, TimesAndNumbers) {
  EXPECT_EQ(format_time(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(format_time(1'790'000'000'123'456'789), "2026-09-21T14:13:20.123Z");
  EXPECT_EQ(format_time(-1), "1969-12-31T23:59:59.999Z");
  EXPECT_EQ(to_text(boost::json::object{{"a", 12.5}, {"b", boost::json::array{1, "x\n"}}, {"c", boost::json::object()}}),
            R"({"a":12.5,"b":[1,"x\n"],"c":{}})");
  EXPECT_EQ(signal_name(15), "SIGTERM");
}

TEST(HostGuard, LetsLoopbackNamesInAndWebPagesOut) {
  const HostGuard guard({"ramet.test"});
  for (const char* host : {"localhost", "LOCALHOST:80", "127.0.0.1:7080", "127.9.9.9", "[::1]:7080", "ramet.test:1"})
    EXPECT_TRUE(guard(host, "")) << host;
  for (const char* host : {"", "evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]", "[::1"})
    EXPECT_FALSE(guard(host, "")) << host;
  EXPECT_TRUE(guard("localhost:7080", "http://localhost:7080"));
  EXPECT_FALSE(guard("localhost:7080", "http://evil.example"));
  EXPECT_FALSE(guard("localhost:7080", "http://localhost:3000"));
  EXPECT_FALSE(guard("localhost:7080", "null"));
}

TEST(Idempotency, RunsOnceAndRepeatsTheAnswer) {
  IdempotencyTable table;
  int runs = 0;
  const auto run = [&] { return Response{201, "", std::to_string(++runs), {}}; };
  const Deadline soon = deadline_after(Milliseconds(1000));
  EXPECT_EQ(table.once("create", "k", "{}", soon, run)->body, "1");
  EXPECT_EQ(table.once("create", "k", "{}", soon, run)->body, "1");
  EXPECT_EQ(table.once("fork", "k", "{}", soon, run)->body, "2");
  EXPECT_EQ(table.once("create", "k", "{\"x\":1}", soon, run).error().kind(), ErrorKind::kConflict);
}

TEST(Idempotency, ServerFailuresMayBeRepeated) {
  IdempotencyTable table;
  int runs = 0;
  const auto run = [&] { return Response{++runs == 1 ? 507 : 201, "", "", {}}; };
  EXPECT_EQ(table.once("create", "k", "", deadline_after(Milliseconds(10)), run)->status, 507);
  EXPECT_EQ(table.once("create", "k", "", deadline_after(Milliseconds(10)), run)->status, 201);
}

TEST(Idempotency, ASecondRequestWaitsForTheFirst) {
  IdempotencyTable table;
  std::latch inside(1), release(1);
  std::jthread first([&] {
    (void)table.once("create", "k", "", deadline_after(Milliseconds(5000)), [&] {
      inside.count_down();
      release.wait();
      return Response{201, "", "first", {}};
    });
  });
  inside.wait();
  EXPECT_EQ(table.once("create", "k", "", deadline_after(Milliseconds(20)), [] { return Response{}; }).error().kind(),
            ErrorKind::kTimeout);
  release.count_down();
  EXPECT_EQ(table.once("create", "k", "", deadline_after(Milliseconds(5000)), [] { return Response{}; })->body, "first");
}

TEST(Idempotency, ForgetsTheOldestWhenFull) {
  IdempotencyTable table;
  int runs = 0;
  const auto run = [&] { return Response{201, "", std::to_string(++runs), {}}; };
  const Deadline soon = deadline_after(Milliseconds(1000));
  for (size_t i = 0; i <= IdempotencyTable::kMaxKeys; i++) (void)table.once("c", std::to_string(i), "", soon, run);
  EXPECT_EQ(table.once("c", std::to_string(IdempotencyTable::kMaxKeys), "", soon, run)->body,
            std::to_string(IdempotencyTable::kMaxKeys + 1));
  EXPECT_EQ(table.once("c", "0", "", soon, run)->body, std::to_string(IdempotencyTable::kMaxKeys + 2));
}

TEST(ConsoleFollower, GivesOnlyWhatIsNew) {
  ConsoleFollower f("abc");
  EXPECT_EQ(f.advance("abc"), "");
  EXPECT_EQ(f.advance("abcdef"), "def");
  EXPECT_EQ(f.advance("defghi"), "defghi");  // what was seen is gone as a whole
}

TEST(ConsoleFollower, FindsItsPlaceInALogThatDroppedItsStart) {
  std::string text;
  for (int i = 0; i < 1000; i++) text += "line " + std::to_string(i) + "\n";
  ConsoleFollower f(text);
  EXPECT_EQ(f.advance(text.substr(2000) + "new\n"), "new\n");
}

TEST(ZstdReader, DecodesInPiecesAndNoticesACut) {
  const std::string plain(3'000'000, 'x');
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), 1));
  std::string out;
  ZstdReader reader;
  const auto sink = [&](std::span<const std::byte> bytes) -> Status {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
  for (size_t i = 0; i < packed.size(); i += 7)
    ASSERT_TRUE(reader.decode(as_bytes(std::string_view(packed).substr(i, 7)), sink));
  EXPECT_TRUE(reader.finish());
  EXPECT_EQ(out, plain);

  ZstdReader cut;
  ASSERT_TRUE(cut.decode(as_bytes(std::string_view(packed).substr(0, packed.size() / 2)), sink));
  EXPECT_FALSE(cut.finish());
  EXPECT_FALSE(ZstdReader().decode(as_bytes("no zstd at all, really"), sink));
}

}  // namespace
}  // namespace ramet::api
