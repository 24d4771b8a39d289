#include <unistd.h>

#include "cli/commands.h"
#include "cli/places.h"

namespace ramet::cli {

// The script does all of it; we become it, so that its terminal, signals and status are ours.
Result<int> cmd_machine(Session& session, const std::vector<std::string>& words) {
  TRY_ASSIGN(const std::string script, find_helper("machine/machine"));
  std::vector<std::string> argv = {script, words.front()};
  if (session.json) argv.push_back("--json");
  argv.insert(argv.end(), words.begin() + 1, words.end());
  std::vector<char*> pointers;
  for (std::string& word : argv) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::setenv("RAMET_STATE", state_dir().c_str(), 1);
  ::execv(script.c_str(), pointers.data());
  return fail_errno("starting " + script);
}

}  // namespace ramet::cli
