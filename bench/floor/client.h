// bench/floor/client.h - bench_fork's side of the floor programme: starts it and speaks floor/protocol.h.
// Not here: measuring policy. One thread; the destructor ends the floor and its children.
#pragma once

#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "floor/protocol.h"

namespace ramet::bench {

struct BaseShape {
  uint64_t ram_mib;
  uint64_t fill_start_mib;  // this part of the base holds data, the rest is zero
  uint64_t fill_mib;
};

class FloorClient {
 public:
  static Result<FloorClient> start(const BaseShape& shape, const std::string& guest_elf);

  // Gives the guest one word and returns the value of its answer.
  Result<uint32_t> command(uint32_t kind, uint32_t value);
  struct Fork {
    FloorReply parent;
    FloorReply child;
  };
  Result<Fork> fork();
  Status end_children();
  Status descend();
  Status restart();

 private:
  FloorClient(ChildProcess process, UniqueFd socket) : process_(std::move(process)), socket_(std::move(socket)) {}
  Status request(FloorOp op, uint32_t word);
  Result<FloorReply> reply();
  Status expect(FloorEvent event);

  ChildProcess process_;
  UniqueFd socket_;
};

}  // namespace ramet::bench
