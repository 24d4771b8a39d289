// chunk/testing/recorded_calls.h - how RecordedDisk hears of what SQLite does; what our own code does it hears through the
// linker
// (-Wl,--wrap). Thread: once.
#pragma once

namespace ramet::chunk::testing {

// From now on the default VFS of SQLite.
void install_recording_vfs();

}  // namespace ramet::chunk::testing
