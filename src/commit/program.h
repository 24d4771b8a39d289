// commit/program.h - foreign programs on foreign files: started in bounds, watched, and never left behind.
// They run with a limit on address space and on the size of files, without new privileges, with a small environment, and die
// with us. Thread: any; one call is one thread's.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace ramet::commit {

struct ProgramRun {
  std::vector<std::string> argv;  // argv[0]: a path, or a name that is looked up where Debian has programs
  std::vector<int> files;         // borrowed; the program has them under the same numbers
  std::vector<std::string> environment = {};
  uint64_t max_file_bytes = 0;  // of what it writes; 64 KiB at least, for what it says
  uint64_t address_space_bytes = 4ull << 30;
  std::chrono::seconds time = std::chrono::hours(2);
  std::function<Status()> on_tick = {};  // now and then, while it runs; an error ends it, and is the answer
};
// Where a program of ours is: beside us, in the build tree's bin, or where a package puts it.   Errors: kUnavailable.
Result<std::string> own_program(const std::string& name);
// How we, and the program, open such a file anew.
inline std::string path_of(int file) { return "/proc/self/fd/" + std::to_string(file); }

// Errors: kUnavailable (not installed), kTimeout, kNoSpace (it says so), kInvalid (it failed; with the end of what it said).
Status run_program(const ProgramRun& run);

}  // namespace ramet::commit
