// cli/tree_view.h - the forest of forks as text: one line per sandbox, lines drawn between parents and children.
// Not here: asking for it. Thread: pure functions.
#pragma once

#include <string>

#include <boost/json.hpp>

namespace ramet::cli {

struct TreeStyle {
  bool utf8 = false;
  bool colours = false;
};
// `tree` is the answer of GET /v1/tree; `now` in seconds since the epoch.
std::string render_tree(const boost::json::object& tree, int64_t now, TreeStyle style);

}  // namespace ramet::cli
