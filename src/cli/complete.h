// cli/complete.h - completion: the shells' scripts all ask `ramet __complete WORDS...` and get one candidate per line, so that
// the rules stand here once. Not here: asking the server for ids (app.cc gives them as functions). Thread: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ramet::cli {

// What the command line knows, taken from its parser.
struct CommandShape {
  std::string name;
  std::vector<std::string> options;  // "--json", "-n"
  std::vector<CommandShape> commands;
  enum class Argument { kNone, kSandbox, kTemplate, kImage, kFile, kSandboxOrFile, kShell } argument = Argument::kNone;
};
struct CompletionSources {
  std::function<std::vector<std::string>()> sandboxes, templates, images;
};

// `words` are those after the program's name; the last one is being written and may be empty. An answer of "@files" asks the
// shell to complete file names.
std::vector<std::string> complete(const CommandShape& root, const std::vector<std::string>& words,
                                  const CompletionSources& sources);

// The script for a shell, nullptr for an unknown one.
const char* completion_script(const std::string& shell);

}  // namespace ramet::cli
