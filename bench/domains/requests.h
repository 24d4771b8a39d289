// domains/requests.h - what a tenant can send that touches a content: one class for each way in. Thread: one.
#pragma once

#include <memory>
#include <vector>

#include "tenant.h"

namespace ramet::bench {

enum class Answer { kBytes, kNotFound, kStored };

class Request {
 public:
  virtual ~Request() = default;
  virtual const char* name() const = 0;
  // Before the request; not timed.
  virtual void prepare(Tenant&, const Content&) {}
  virtual Answer ask(Tenant& tenant, const Content& content) = 0;
  // After it; not timed.
  virtual void clean_up(Tenant&) {}
};

std::vector<std::unique_ptr<Request>> all_requests();

}  // namespace ramet::bench
