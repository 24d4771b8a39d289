// cli/places.h - where things are: the client's state, the daemon's socket, the machine's URL, helper programs.
// Not here: what is done with them. Thread: reads the environment; call from one thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/http_client.h"

namespace ramet::cli {

std::string state_dir();    // $RAMET_STATE, else /var/lib/ramet for root, else ~/.local/share/ramet
std::string runtime_dir();  // $RAMET_RUNTIME, else /run/ramet for root, else $XDG_RUNTIME_DIR/ramet

// The server: `url` or $RAMET_URL, else the local unix socket when somebody listens there, else what `machine start` left in
// STATE/machine/machine.json.   Errors: kUnavailable (with what was tried), kInvalid.
Result<Endpoint> pick_server(const std::string& url);

// A script such as "templates/build": in $RAMET_LIBEXEC, in the source tree this program was built in, in /usr/libexec/ramet.
Result<std::string> find_helper(const std::string& relative);
// ramet-vmm beside this program, in $RAMET_LIBEXEC, /usr/libexec/ramet or PATH.
std::optional<std::string> find_program(const std::string& name);
// A library that a program loads, in the same places but PATH.
std::optional<std::string> find_module(const std::string& name);

}  // namespace ramet::cli
