// Imports an image, makes a template and a sandbox, forks it twice, makes an image of its disk, a snapshot of it, pauses and
// resumes it, rolls it back, removes things, in one Host and a second one that adopts what runs; a test sets RAMET_CRASH_AT so
// that it dies somewhere on the way. Usage: host_crash_driver ROOT. Ends with 0 when it was not killed.
#include <cstdio>

#include "base/log.h"
#include "host/images/images.h"
#include "host/testing/host_fixture.h"

namespace ramet::host::testing {
namespace {

Status import_image(Host& host) {
  TRY_ASSIGN(const std::unique_ptr<ImageUpload> upload, host.images().upload("image"));
  TRY(upload->write(as_bytes("something")));
  TRY(upload->finish({}));
  return {};
}

Status drive(const std::string& root) {
  TRY_ASSIGN(std::unique_ptr<Host> host, Host::open(tiny_options(root)));
  TRY(import_image(*host));
  TRY(upload_tiny(*host, "other", "counter"));
  CreateOptions create;
  create.template_name = "tiny";
  TRY_ASSIGN(const SandboxInfo first, host->create(create));
  ForkOptions fork;
  fork.count = 2;
  fork.strictness = ForkStrictness::kLoose;
  TRY_ASSIGN(const ForkResult forked, host->fork(first.id, fork));
  TRY(host->commit_disk(first.id, "disk"));
  SnapshotOptions loose;
  loose.strictness = ForkStrictness::kLoose;
  TRY_ASSIGN(const SnapshotResult snapshot, host->snapshot(first.id, loose));
  TRY(host->save_template("warm", {.snapshot = snapshot.info.id, .env = {}}));
  TRY(host->pause(first.id));
  host.reset();
  HostOptions slow = tiny_options(root);  // so that there is something left for the next one to fetch
  slow.memory_fill = MemoryFill::kOnlyOnDemand;
  TRY_ASSIGN(host, Host::open(std::move(slow)));
  TRY(host->resume(first.id));
  TRY_ASSIGN(const SandboxInfo second, host->create(create));
  TRY(host->remove(second.id));
  host.reset();
  TRY_ASSIGN(host, Host::open(tiny_options(root)));
  TRY(host->rollback(first.id, snapshot.info.id));
  TRY(host->pause(first.id));
  TRY(host->remove_snapshot(snapshot.info.id));
  TRY(host->remove_template("warm"));
  TRY(host->remove(forked.children[0].id));
  TRY(host->remove(first.id));
  return host->remove(forked.children[1].id);
}

}  // namespace
}  // namespace ramet::host::testing

int main(int argc, char** argv) {
  ramet::log_init("host_crash_driver", "", ramet::LogLevel::kWarn);
  if (argc != 2) return 2;
  const ramet::Status done = ramet::host::testing::drive(argv[1]);
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
