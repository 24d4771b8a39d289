// What no real server can be made to do: breaking off, lying, being busy. A server of raw bytes says it, one answer a
// connection.
#include "chunk/s3/client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "base/file.h"
#include "chunk/digest.h"

namespace ramet::chunk::s3 {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Gives the answers in their order, each on a connection of its own, and notes what was asked. An empty one: hangs up.
class RawServer {
 public:
  explicit RawServer(std::vector<std::string> answers) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {::htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    endpoint_ = "http://127.0.0.1:" + std::to_string(::ntohs(address.sin_port));
    thread_ = std::thread([this, said = std::move(answers)] { serve(said); });
  }
  ~RawServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::unique_ptr<Client> client() const {
    Client::Options options;
    options.first_pause = options.longest_pause = Milliseconds(1);
    options.http.timeout = Milliseconds(5'000);
    return Client::create({.endpoint = endpoint_, .bucket = "b", .credentials = {"key", "secret", ""}}, options).value();
  }
  // After the client is done.
  const std::vector<std::string>& asked() const { return asked_; }

 private:
  void serve(const std::vector<std::string>& answers) {
    for (const std::string& answer : answers) {
      const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection) return;
      std::string head;
      for (char c = 0; !head.ends_with("\r\n\r\n") && ::read(connection.get(), &c, 1) == 1;) head += c;
      asked_.push_back(head);
      static_cast<void>(write_all(connection.get(), as_bytes(answer)));
    }
  }
  const UniqueFd listener_;
  std::string endpoint_;
  std::vector<std::string> asked_;
  std::thread thread_;
};

std::string answer(const std::string& status, const std::string& body, const std::string& headers = "") {
  return "HTTP/1.1 " + status + "\r\nConnection: close\r\n" + headers + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}
const std::string kBusy = answer("503 Slow Down", "<Error><Code>SlowDown</Code><Message>later</Message></Error>");

TEST(Client, TriesAgainWhenTheServerIsBusyOrHangsUp) {
  const RawServer server({kBusy, answer("429 Too Many", ""), "", answer("206 Partial Content", "12345")});
  std::vector<std::byte> out(5);
  ASSERT_TRUE(server.client()->get_range("k", 0, out));
  EXPECT_EQ(out[4], std::byte{'5'});
  EXPECT_EQ(server.asked().size(), 4u);
}

TEST(Client, GivesUpAfterSomeAttempts) {
  const RawServer server(std::vector<std::string>(5, kBusy));
  const Result<uint64_t> size = server.client()->size_bytes("k");
  EXPECT_EQ(size.error().kind(), ErrorKind::kUnavailable);
  EXPECT_EQ(server.asked().size(), 5u);
}

TEST(Client, ARefusalIsNotTriedAgain) {
  const RawServer server({answer("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>"), kBusy});
  EXPECT_EQ(server.client()->remove("k").error().kind(), ErrorKind::kPermission);
  EXPECT_EQ(server.asked().size(), 1u);
}

TEST(Client, NobodyListeningIsUnavailable) {
  std::unique_ptr<Client> client;
  {
    const RawServer server({});
    client = server.client();
  }
  EXPECT_EQ(client->size_bytes("k").error().kind(), ErrorKind::kUnavailable);
}

TEST(Client, AnAnswerLongerThanAskedForIsRefused) {
  const RawServer server({answer("206 Partial Content", std::string(100'000, 'x'))});
  std::vector<std::byte> out(5);
  EXPECT_EQ(server.client()->get_range("k", 0, out).error().kind(), ErrorKind::kCorrupt);
}

TEST(Client, AShortAnswerIsRefused) {
  const RawServer server({answer("206 Partial Content", "1234"), answer("200 OK", "12345")});
  const std::unique_ptr<Client> client = server.client();
  std::vector<std::byte> out(5);
  EXPECT_EQ(client->get_range("k", 0, out).error().kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(client->get_range("k", 0, out).error().kind(), ErrorKind::kIo);  // not a range at all
}

TEST(Client, AnAnswerCutOffIsTriedAgain) {
  const std::string whole = answer("206 Partial Content", "12345");
  const RawServer server({whole.substr(0, whole.size() - 2), whole});
  std::vector<std::byte> out(5);
  EXPECT_TRUE(server.client()->get_range("k", 0, out));
}

TEST(Client, AnUploadWhoseAnswerWasLostHasSucceeded) {
  const std::string bytes = "the pack";
  const std::string exists = answer("412 Precondition Failed", "<Error><Code>PreconditionFailed</Code></Error>");
  const std::string there = "X-Amz-Meta-Sha256: " + sha256(as_bytes(bytes)).to_hex() + "\r\n";
  {
    const RawServer server({"", exists, answer("200 OK", "", there)});
    EXPECT_TRUE(server.client()->put("k", as_bytes(bytes)));
  }
  {
    const RawServer server({"", exists, answer("200 OK", "", "X-Amz-Meta-Sha256: 00\r\n")});
    EXPECT_EQ(server.client()->put("k", as_bytes(bytes)).error().kind(), ErrorKind::kExists);
  }
}

TEST(Client, AServerWithoutConditionalWritesIsAskedBefore) {
  const std::string unsupported = answer("501 Not Implemented", "<Error><Code>NotImplemented</Code></Error>");
  const RawServer server({unsupported, answer("404 Not Found", ""), answer("200 OK", ""), answer("200 OK", "")});
  const std::unique_ptr<Client> client = server.client();
  EXPECT_TRUE(client->put("k", as_bytes("x")));
  EXPECT_EQ(client->put("k", as_bytes("x")).error().kind(), ErrorKind::kExists);
}

TEST(Client, TheSecretIsNeverSent) {
  const RawServer server({answer("200 OK", "")});
  ASSERT_TRUE(server.client()->put("k", as_bytes("x")));
  EXPECT_THAT(server.asked().at(0), HasSubstr("Credential=key/"));
  EXPECT_THAT(server.asked().at(0), Not(HasSubstr("secret")));
}

TEST(Client, APlaceMustBeOne) {
  for (const char* endpoint : {"", "ftp://x", "https://", "https://a/b", "http://u@h", "https://a\r\nb"})
    EXPECT_EQ(Client::create({.endpoint = endpoint, .bucket = "b"}, {}).error().kind(), ErrorKind::kInvalid) << endpoint;
  for (const char* bucket : {"", "a/b", "a?b", "é"})
    EXPECT_EQ(Client::create({.endpoint = "https://h", .bucket = bucket}, {}).error().kind(), ErrorKind::kInvalid) << bucket;
}

}  // namespace
}  // namespace ramet::chunk::s3
