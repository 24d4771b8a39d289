// chunk/s3/testing/server.h - the S3 server of the tests, started once per program (tests/s3/server). Thread: any.
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/child_process.h"
#include "base/file.h"
#include "chunk/s3/client.h"

namespace ramet::chunk::s3::testing {

class Server {
 public:
  static Server& instance() {
    static Server server;
    return server;
  }
  const Place& place() const { return place_; }
  std::unique_ptr<Client> client() const { return Client::create(place_, {}).value(); }

 private:
  Server() : stdin_(make_pipe().value()), stdout_(make_pipe().value()) {
    process_.emplace(ChildProcess::spawn({.argv = {RAMET_SOURCE_DIR "/tests/s3/server", "run"},
                                          .stdin_fd = stdin_.read_end.get(),
                                          .stdout_fd = stdout_.write_end.get()})
                         .value());
    stdout_.write_end.reset();
    stdin_.read_end.reset();
    std::string line;
    for (char c = 0; c != '\n'; line += c)
      if (::read(stdout_.read_end.get(), &c, 1) != 1) throw std::runtime_error("tests/s3/server did not start");
    const boost::json::value said = boost::json::parse(line);
    const auto word = [&](const char* name) { return std::string(said.at(name).as_string()); };
    place_ = {.endpoint = word("endpoint"),
              .region = word("region"),
              .bucket = word("bucket"),
              .credentials = {word("access_key"), word("secret_key"), ""}};
  }
  ~Server() {
    stdin_.write_end.reset();  // its sign to end and to clean up
    static_cast<void>(process_->wait(deadline_after(std::chrono::seconds(10))));
  }

  Pipe stdin_, stdout_;
  std::optional<ChildProcess> process_;
  Place place_;
};

}  // namespace ramet::chunk::s3::testing
