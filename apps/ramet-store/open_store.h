// ramet-store/open_store.h - what all commands begin with, and how they print. Thread: one.
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <vector>

#include "chunk/store.h"
#include "commands.h"
#include "commit/catalogue.h"

namespace ramet::store_tool {

struct OpenStore {
  std::unique_ptr<chunk::Store> store;
  commit::Catalogue catalogue;
  // That one and those that belong to a daemon (disks of its templates): what all need of the store.
  std::vector<commit::Catalogue> everybody;
};

// Errors: kNotFound (no store there).
Status must_exist(const Place& place);
enum class Missing { kIsAnError, kIsMade };
Result<OpenStore> open_store(const Place& place, Missing missing = Missing::kIsAnError);

// One line on standard output.
void print(const boost::json::value& value);

}  // namespace ramet::store_tool
