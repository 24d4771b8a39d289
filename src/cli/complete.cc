#include "cli/complete.h"

#include <algorithm>
#include <cstdio>

#include "cli/commands.h"

namespace ramet::cli {
namespace {

constexpr const char* kBash = R"SH(# bash completion of ramet; put it in ~/.bashrc:  eval "$(ramet completion bash)"
_ramet() {
  local IFS=$'\n' cur="${COMP_WORDS[COMP_CWORD]}"
  # A colon splits words in bash; give ramet whole ones.
  local line="${COMP_LINE:0:COMP_POINT}" words
  IFS=' ' read -r -a words <<< "$line"
  [[ "$line" == *' ' ]] && words+=('')
  local answer
  answer=$(ramet __complete "${words[@]:1}" 2>/dev/null) || return
  if [[ "$answer" == *@files* ]]; then compopt -o default 2>/dev/null; answer=${answer//@files/}; fi
  COMPREPLY=($(compgen -W "$answer" -- "$cur"))
}
complete -F _ramet ramet
)SH";

constexpr const char* kZsh = R"SH(#compdef ramet
# zsh completion of ramet; put it in ~/.zshrc:  eval "$(ramet completion zsh)"
_ramet() {
  local -a found
  found=("${(@f)$(ramet __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if (( ${found[(I)@files]} )); then _files; found=("${(@)found:#@files}"); fi
  (( ${#found} )) && compadd -- "${(@)found:#}"
}
compdef _ramet ramet
)SH";

constexpr const char* kFish =
    R"SH(# fish completion of ramet; put it in ~/.config/fish/completions/ramet.fish:  ramet completion fish
function __ramet_complete
  set -l words (commandline -opc) (commandline -ct)
  for found in (ramet __complete $words[2..-1] 2>/dev/null)
    if test "$found" = "@files"
      __fish_complete_path (commandline -ct)
    else
      echo $found
    end
  end
end
complete -c ramet -f -a '(__ramet_complete)'
)SH";

void add_matching(std::vector<std::string>& out, const std::vector<std::string>& candidates, const std::string& prefix) {
  for (const std::string& c : candidates)
    if (c.starts_with(prefix)) out.push_back(c);
}

}  // namespace

std::vector<std::string> complete(const CommandShape& root, const std::vector<std::string>& words,
                                  const CompletionSources& sources) {
  const CommandShape* at = &root;
  const std::string current = words.empty() ? "" : words.back();
  for (size_t i = 0; i + 1 < words.size(); i++) {
    if (words[i] == "--") return {"@files"};  // a command in the sandbox: not ours
    const auto next =
        std::find_if(at->commands.begin(), at->commands.end(), [&](const CommandShape& c) { return c.name == words[i]; });
    if (next != at->commands.end()) at = &*next;
  }
  std::vector<std::string> out;
  if (current.starts_with('-')) {
    add_matching(out, at->options, current);
    if (at != &root) add_matching(out, root.options, current);
    return out;
  }
  for (const CommandShape& c : at->commands)
    if (c.name.starts_with(current)) out.push_back(c.name);
  using Argument = CommandShape::Argument;
  switch (at->argument) {
    case Argument::kNone: break;
    case Argument::kSandbox: add_matching(out, sources.sandboxes(), current); break;
    case Argument::kTemplate: add_matching(out, sources.templates(), current); break;
    case Argument::kImage: add_matching(out, sources.images(), current); break;
    case Argument::kFile: out.push_back("@files"); break;
    case Argument::kSandboxOrFile:
      for (const std::string& id : sources.sandboxes())
        if ((id + ":").starts_with(current)) out.push_back(id + ":");
      out.push_back("@files");
      break;
    case Argument::kShell: add_matching(out, {"bash", "zsh", "fish"}, current); break;
  }
  return out;
}

const char* completion_script(const std::string& shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  return nullptr;
}

Result<int> cmd_completion(const std::string& shell) {
  const char* script = completion_script(shell);
  if (script == nullptr)
    return fail(ErrorKind::kInvalid, "no completion for the shell `" + shell + "`; there is bash, zsh and fish");
  printf("%s", script);
  return 0;
}

}  // namespace ramet::cli
