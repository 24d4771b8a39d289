// cli/app.h - the command line: words in, a command run, its exit status out. Not here: what commands do (commands.h).
// Thread: one.
#pragma once

#include <string>
#include <vector>

namespace ramet::cli {

// `words` without the program's name. Prints everything itself.
int run_app(const std::vector<std::string>& words);

}  // namespace ramet::cli
