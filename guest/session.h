// guest/session.h - one connection and the operation it carries. An operation that goes on after its request implements
// Operation. Thread: the reactor's. Owned by Agent, destroyed only between events.
#pragma once

#include <functional>
#include <memory>

#include "connection.h"

namespace ramet::guest {

class Operation {
 public:
  virtual ~Operation() = default;
  virtual void on_input(const abi::Input&) {}
  virtual void on_drained() {}
};

struct Session {
  uint64_t id = 0;
  std::unique_ptr<Connection> connection;
  std::unique_ptr<Operation> operation;  // dies first: it uses the connection
  bool requested = false;
  std::function<void()> on_abandoned;  // the host left before the answer
};

}  // namespace ramet::guest
