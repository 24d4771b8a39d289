#include "cli/app.h"

#include <CLI/CLI.hpp>

#include <cstdio>

#include "cli/commands.h"
#include "cli/complete.h"
#include "cli/exit_codes.h"

#ifndef RAMET_VERSION
#define RAMET_VERSION "0.1.0"
#endif

namespace ramet::cli {
namespace {

using Argument = CommandShape::Argument;

constexpr const char* kDescription =
    "ramet - sandboxes that fork while they run\n\n"
    "A sandbox is a microVM with its own Linux kernel. `fork` copies a running one, RAM, processes and disk at one instant, in "
    "milliseconds.\n"
    "Sandboxes are named by their id, the start of it, or the name given by --name.";

std::string footer() {
  std::string text =
      "Examples:\n"
      "  ramet machine start                          start the daemon on this computer\n"
      "  ramet template build base                    make the template `base`, once\n"
      "  ramet run base                               a sandbox; prints its id\n"
      "  ramet run base --rm -- python3 -c 'print(1)' run one command in a fresh sandbox, then remove it\n"
      "  ramet exec -t 3f                             a shell in the sandbox whose id starts with 3f\n"
      "  ramet fork 3f -n 4                           four live copies\n"
      "  ramet tree                                   who was forked from whom, and how far they went apart\n"
      "  ramet cp results/ 3f:/home/user/             copy a directory in\n"
      "\n"
      "Which server: --url or RAMET_URL (unix:///PATH or http://HOST:PORT), else the local daemon's socket, else the machine "
      "that\n"
      "`ramet machine start` started.\n"
      "\n"
      "Environment:\n"
      "  RAMET_URL       server\n"
      "  RAMET_STATE     where this client and `machine` keep things (default /var/lib/ramet for root, else "
      "~/.local/share/ramet)\n"
      "  RAMET_RUNTIME   where the local daemon's socket is (default /run/ramet for root, else $XDG_RUNTIME_DIR/ramet)\n"
      "  RAMET_LIBEXEC   where templates/build and machine/machine are, when not beside this program\n"
      "  NO_COLOR        no colours\n"
      "\n"
      "Exit status:\n";
  for (const ExitRow& row : exit_rows()) {
    char line[160];
    snprintf(line, sizeof line, "  %-4d %.*s\n", row.status, static_cast<int>(row.meaning.size()), row.meaning.data());
    text += line;
  }
  text.pop_back();
  return text;
}

// Everything the parser writes into, and what is to be run.
struct Line {
  Session session;
  RunOptions run;
  ListOptions list;
  ExecOptions exec;
  CopyOptions copy;
  ForkOptions fork;
  KillOptions kill;
  LogsOptions logs;
  PauseOptions pause;
  RollbackOptions rollback;
  SnapshotOptions snapshot;
  TemplateOptions templ;
  ImageOptions image;
  DiskOptions disk;
  std::string shell, ps_id;
  std::vector<std::string> after_dashes;  // the command in the sandbox or machine
  std::map<const CLI::App*, Argument> arguments;
  std::function<Result<int>()> chosen;
};

CLI::App* add(Line& line, CLI::App& parent, const char* name, const char* what, const std::string& more, Argument argument,
              std::function<Result<int>()> run) {
  CLI::App* command = parent.add_subcommand(name, what);
  if (!more.empty()) command->footer(more);
  command->fallthrough();
  line.arguments[command] = argument;
  if (run) command->callback([&line, run] { line.chosen = run; });
  return command;
}

void add_exec_options(CLI::App* command, ExecOptions& o) {
  command->add_flag("-i,--interactive", o.interactive, "Pass standard input on");
  command->add_flag("-t,--tty", o.terminal,
                    "Give the command a terminal (and pass input on); without a command: the user's shell");
  command->add_option("-e,--env", o.env, "NAME=VALUE for the command; may be repeated")->allow_extra_args(false);
  command->add_option("-w,--cwd", o.cwd, "Start in this directory of the sandbox");
  command->add_option("-u,--user", o.user,
                      "Run as this user of the sandbox (default: the one its image names; `root` for root)");
  command->add_option("--timeout", o.timeout, "End the command and its children after this time (90s, 15m)");
}

void add_snapshot_commands(Line& line, CLI::App& app) {
  Session& s = line.session;
  CLI::App* snapshot = add(line, app, "snapshot", "Keep sandboxes as they are at one instant", "", Argument::kNone, {});
  snapshot->require_subcommand(1);
  CLI::App* create = add(line, *snapshot, "create", "Keep a running sandbox as it is now",
                         "The sandbox goes on. `ramet run --snapshot NAME` starts copies of it, any number.\n\n"
                         "Examples:\n  ramet snapshot create 3f --name warm\n  ramet snapshot create 3f --keep 0",
                         Argument::kSandbox, [&line, &s] { return cmd_snapshot_create(s, line.snapshot); });
  create->add_option("sandbox", line.snapshot.sandbox, "Id, start of it, or name")->required();
  create->add_option("--name", line.snapshot.name, "A name for it");
  create->add_option("--keep", line.snapshot.keep, "Forget it after this time (90s, 15m, 2h, 1d; default 7d); 0: never");
  create->add_option("--label", line.snapshot.labels, "KEY=VALUE; may be repeated")->allow_extra_args(false);
  create->add_flag(
      "--no-strict", line.snapshot.loose,
      "Do not freeze user processes around the instant: shorter pause, but copies may draw equal random numbers once");
  add(line, *snapshot, "ls", "List snapshots", "", Argument::kNone, [&s] { return cmd_snapshot_ls(s); });
  CLI::App* rm = add(line, *snapshot, "rm", "Delete snapshots", "Sandboxes that were made from them live on.", Argument::kNone,
                     [&line, &s] { return cmd_snapshot_rm(s, line.snapshot); });
  rm->add_option("snapshots", line.snapshot.names, "Ids or names")->required();
}

void add_sandbox_commands(Line& line, CLI::App& app) {
  Session& s = line.session;
  CLI::App* run =
      add(line, app, "run", "Make a sandbox from a template, and run a command in it",
          "Without a command the id is printed. With one it runs as with `ramet exec`, and its status is returned.\n\n"
          "Examples:\n  ramet run base --name work --ttl 2h\n  ramet run base --rm -t\n"
          "  ramet run base --rm -- python3 -c 'print(40 + 2)'\n  tar c . | ramet run base --rm -i -- tar t",
          Argument::kTemplate, [&line, &s] { return cmd_run(s, line.run); });
  run->add_option("template", line.run.template_name, "Template")->capture_default_str();
  run->add_option("--template", line.run.template_name, "The same as an option");
  run->add_option("--snapshot", line.run.snapshot, "Start it where this snapshot was taken, instead of from a template");
  run->add_option("--name", line.run.name, "A name; stored as the label `name`");
  run->add_option("--label", line.run.labels, "KEY=VALUE; may be repeated")->allow_extra_args(false);
  run->add_option("--ttl", line.run.ttl, "Remove it after this time (90s, 15m, 2h, 1d); 0: never");
  run->add_option("--pause-when-idle", line.run.idle,
                  "Pause it when nothing has used it for this time (90s, 15m); the next command resumes it");
  run->add_option("--vcpus", line.run.vcpus, "Number of CPUs (default: the template's)");
  run->add_option("--memory", line.run.memory, "Memory, 512M or 2G (default: the template's)");
  run->add_flag("--rm", line.run.remove, "Remove the sandbox when the command has ended");
  add_exec_options(run, line.run.exec);

  CLI::App* ls = add(line, app, "ls", "List sandboxes", "", Argument::kNone, [&line, &s] { return cmd_ls(s, line.list); });
  ls->add_option("--label", line.list.label, "Only those with this label, KEY or KEY=VALUE");

  CLI::App* exec =
      add(line, app, "exec", "Run a command in a sandbox",
          "Output, exit status and signals are passed through; -i passes standard input, -t also a terminal with its size.\n"
          "Ramet's own failures exit with 125.\n\n"
          "Examples:\n  ramet exec 3f -- ls -l /\n  ramet exec -t 3f\n  ramet exec 3f -e N=3 -w /tmp -- sh -c 'echo $N; pwd'\n"
          "  cat data | ramet exec -i 3f -- wc -c",
          Argument::kSandbox, [&line, &s] { return cmd_exec(s, line.exec); });
  exec->add_option("sandbox", line.exec.id, "Id, start of it, or name")->required();
  exec->add_option("command", line.exec.command, "Command; write it after `--`");
  exec->add_flag("-d,--detach", line.exec.detach, "Start it, print its pid, do not wait");
  add_exec_options(exec, line.exec);

  CLI::App* ps = add(line, app, "ps", "List the commands of a sandbox", "", Argument::kSandbox,
                     [&line, &s] { return cmd_ps(s, line.ps_id); });
  ps->add_option("sandbox", line.ps_id, "Id, start of it, or name")->required();

  CLI::App* cp = add(
      line, app, "cp", "Copy a file or directory into or out of a sandbox",
      "A side in a sandbox is ID:/path; a relative path starts at /home/user. Onto a directory, or a path that ends with `/`,\n"
      "it is copied into it. Directories keep links, modes and times.\n\n"
      "Examples:\n  ramet cp script.py 3f:\n  ramet cp data/ 3f:/srv/\n  ramet cp 3f:/var/log/dpkg.log .",
      Argument::kSandboxOrFile, [&line, &s] { return cmd_cp(s, line.copy); });
  cp->add_option("from", line.copy.from, "What")->required();
  cp->add_option("to", line.copy.to, "Where to")->required();
  cp->add_option("-u,--user", line.copy.user,
                 "Act as this user of the sandbox (default: the one its image names; `root` for root)");

  CLI::App* fork = add(line, app, "fork", "Fork a running sandbox",
                       "The copies start with the RAM, processes and disk of this instant; the sandbox itself goes on. Their "
                       "ids are printed.\n\n"
                       "Examples:\n  ramet fork 3f\n  ramet fork 3f -n 8 --ttl 10m --label try=2",
                       Argument::kSandbox, [&line, &s] { return cmd_fork(s, line.fork); });
  fork->add_option("sandbox", line.fork.id, "Id, start of it, or name")->required();
  fork->add_option("-n,--count", line.fork.count, "Number of copies")->check(CLI::Range(1, 100))->capture_default_str();
  fork->add_flag("--partial", line.fork.partial,
                 "Keep the copies that started when others fail (exit status 1), instead of all or nothing");
  fork->add_flag(
      "--no-strict", line.fork.loose,
      "Do not freeze user processes around the instant: shorter pause, but branches may draw equal random numbers once");
  fork->add_option("--ttl", line.fork.ttl, "Remove the copies after this time");
  fork->add_option("--label", line.fork.labels, "KEY=VALUE for the copies (default: the parent's labels)")
      ->allow_extra_args(false);

  for (const bool pause : {true, false}) {
    CLI::App* one = pause ? add(line, app, "pause", "Store sandboxes and end their processes",
                                "Memory, disk and processes are kept until the sandbox is resumed or killed; meanwhile it "
                                "costs no memory and no\n"
                                "processor. A command in it, or a copy into it, resumes it.\n\nExample:\n  ramet pause 3f 9c",
                                Argument::kSandbox, [&line, &s] { return cmd_pause(s, line.pause); })
                          : add(line, app, "resume", "Start paused sandboxes where they were", "Example:\n  ramet resume 3f",
                                Argument::kSandbox, [&line, &s] { return cmd_resume(s, line.pause); });
    one->add_option("sandboxes", line.pause.ids, "Ids, starts of them, or names")->required();
  }

  CLI::App* rollback = add(line, app, "rollback", "Put a sandbox back to a snapshot",
                           "Memory, processes and disk become those of the snapshot, what is there now is lost; id, name and "
                           "time to live stay.\nA paused one runs then.\n\nExample:\n  ramet rollback 3f warm",
                           Argument::kSandbox, [&line, &s] { return cmd_rollback(s, line.rollback); });
  rollback->add_option("sandbox", line.rollback.sandbox, "Id, start of it, or name")->required();
  rollback->add_option("snapshot", line.rollback.snapshot, "Id or name of a snapshot of the same size")->required();

  add(line, app, "tree", "Show who was forked from whom and how far they went apart",
      "FORK is the fork itself, READY until the agent in the copy had confirmed its identity. RAM DIVERGED differs from the\n"
      "template's image, RAM OWN is shared with no other branch, DISK OWN is the space of its own disk blocks.",
      Argument::kNone, [&s] { return cmd_tree(s); });

  CLI::App* kill = add(line, app, "kill", "End sandboxes and delete their disks",
                       "Forks of them live on.\n\nExamples:\n  ramet kill 3f 9c\n  ramet kill --all", Argument::kSandbox,
                       [&line, &s]() -> Result<int> {
                         if (line.kill.ids.empty() && !line.kill.all)
                           return fail(ErrorKind::kInvalid, "name the sandboxes to kill, or give --all");
                         return cmd_kill(s, line.kill);
                       });
  kill->add_option("sandbox", line.kill.ids, "Ids, starts of them, or names");
  kill->add_flag("--all", line.kill.all, "All of them");

  CLI::App* logs = add(line, app, "logs", "Print a sandbox's console", "", Argument::kSandbox,
                       [&line, &s] { return cmd_logs(s, line.logs); });
  logs->add_option("sandbox", line.logs.id, "Id, start of it, or name")->required();
  logs->add_flag("-f,--follow", line.logs.follow, "Go on with what is added");
}

void add_template_commands(Line& line, CLI::App& app) {
  Session& s = line.session;
  CLI::App* group = add(line, app, "template", "Build, list and remove templates", "", Argument::kNone, nullptr);
  group->require_subcommand(1);
  CLI::App* build = add(line, *group, "build", "Build a template: from Debian packages, or by steps in a sandbox",
                        "Without steps: recipes are the folders in templates/. Nothing is installed or mounted on this "
                        "computer. When the server\n"
                        "has the same template already nothing is sent.\n"
                        "With steps (--step, or a file): each runs in a sandbox of the server, and what it came to is kept "
                        "there, so that the next\n"
                        "build begins at the first step that is another. Sandboxes start where the last step ended, with what "
                        "was started running.\n"
                        "\n"
                        "  run COMMAND         in the sandbox\n"
                        "  copy FROM TO        a file or directory of this computer\n"
                        "  env NAME=VALUE      for later steps, and for commands in the template's sandboxes\n"
                        "  user NAME           who later steps are\n"
                        "  workdir /DIRECTORY  where later steps are done\n"
                        "  start COMMAND       goes on in every sandbox; in a file with a check: \"ready\": COMMAND\n"
                        "\n"
                        "Examples:\n  ramet template build base\n  ramet template build web -f web.json\n"
                        "  ramet template build tools --from base --step 'user root' --step 'run apt-get install -y git'",
                        Argument::kTemplate, [&line, &s] { return cmd_template_build(s, line.templ); });
  build->add_option("name", line.templ.name, "Name of the recipe and of the template")->required();
  build->add_option("--output", line.templ.directory, "Keep the files here (default: STATE/built/NAME)");
  build->add_flag("--fresh", line.templ.fresh, "Use nothing that an earlier build came to; ask the Debian archive again");
  build->add_option("-f,--file", line.templ.file, "File with the steps (JSON, docs/templates.md)");
  build->add_option("--from", line.templ.from, "Template that the steps begin with (default: base)");
  build->add_option("-s,--step", line.templ.steps, "One step; may be repeated")->allow_extra_args(false);
  build->add_option("--vcpus", line.templ.vcpus, "Number of CPUs (default: the template's)");
  build->add_option("--memory", line.templ.memory, "Memory, 512M or 2G (default: the template's)");
  CLI::App* push = add(line, *group, "push", "Give a built template directory to the server", "", Argument::kFile,
                       [&line, &s] { return cmd_template_push(s, line.templ); });
  push->add_option("directory", line.templ.directory, "Directory with template.json, vmlinux, initrd, disk.img")->required();
  push->add_option("--name", line.templ.name, "Another name than the one in template.json");
  add(line, *group, "ls", "List templates", "", Argument::kNone, [&s] { return cmd_template_ls(s); });
  CLI::App* rm = add(line, *group, "rm", "Remove templates; their sandboxes live on", "", Argument::kTemplate,
                     [&line, &s] { return cmd_template_rm(s, line.templ); });
  rm->add_option("name", line.templ.names, "Templates")->required();
}

void add_image_commands(Line& line, CLI::App& app) {
  Session& s = line.session;
  CLI::App* group = add(line, app, "image", "Keep disk images in the server's store", "", Argument::kNone, nullptr);
  group->require_subcommand(1);
  CLI::App* import = add(line, *group, "import", "Import a disk, or files that become one",
                         "  raw     a disk as it is; holes are not even read\n"
                         "  qcow2   one file that needs no other\n"
                         "  tar     a root file system, plain or compressed by gzip, bzip2, xz or zstd\n"
                         "  dir     the same as a directory\n"
                         "  oci     an OCI image layout, as a directory or as a tar of one\n\n"
                         "Files become an ext4 file system without partitions. The format is found out from the first bytes (a "
                         "compressed file is\n"
                         "taken for a tar, one that says nothing for a raw disk) unless --format says it. Zeros take no space, "
                         "and what the store\n"
                         "has already is not stored again.\n\n"
                         "Examples:\n  ramet image import debian.raw debian\n  ramet image import cloud.qcow2 cloud\n"
                         "  ramet image import /srv/root app --disk-mib 4096\n"
                         "  ramet image import layout/ app-2 --tag latest --parent app",
                         Argument::kFile, [&line, &s] { return cmd_image_import(s, line.image); });
  import->add_option("file", line.image.file, "File or directory")->required();
  import->add_option("name", line.image.name, "Name of the image: letters, digits, `.`, `_` and `-`")->required();
  import->add_option("-f,--format", line.image.format, "raw, qcow2, tar, dir or oci (default: found out)");
  import->add_option("--parent", line.image.parent, "An image that this one is a version of: finds more of what is equal");
  import->add_option("--tag", line.image.tag, "Which image of an OCI layout with several");
  import
      ->add_option("--disk-mib", line.image.disk_mib, "Size of the file system made of files (default: fitting, at least 1024)")
      ->check(CLI::Range(uint64_t{64}, uint64_t{4} << 20));
  CLI::App* out =
      add(line, *group, "export", "Write an image, or the files in it",
          "  raw     the disk as it is; blocks of zeros become holes\n"
          "  qcow2   the same as a qcow2 file\n"
          "  tar     the files of a disk that is an ext4 file system without partitions\n"
          "  oci     these files as an OCI image of one layer, tagged with the image's name\n"
          "  dir     the files, unpacked: as root with owners and device nodes, else without\n\n"
          "What is to be made must not exist, and is there when it is whole. Its name says the format unless --format does: "
          ".qcow2, .tar,\n"
          ".oci.tar, a directory by a slash at its end (with --format oci the layout as a directory), else raw. Files come "
          "with\n"
          "holes, links, times, extended attributes and POSIX ACLs; sockets and lost+found do not.\n\n"
          "Examples:\n  ramet image export debian debian.raw\n  ramet image export debian debian.qcow2\n"
          "  ramet image export app app.tar\n  ramet image export app root/\n"
          "  ramet image export app app.oci.tar && skopeo inspect oci-archive:app.oci.tar",
          Argument::kImage, [&line, &s] { return cmd_image_export(s, line.image); });
  out->add_option("name", line.image.name, "Image")->required();
  out->add_option("file", line.image.file, "New file or directory")->required();
  out->add_option("-f,--format", line.image.format, "raw, qcow2, tar, oci or dir (default: by the name)");
  CLI::App* commit = add(line, *group, "commit", "Make an image of a sandbox's disk",
                         "The disk is that of one instant, for which the file system in the sandbox is frozen; the sandbox "
                         "goes on meanwhile. Only\n"
                         "what it changed since its template is stored.\n\n"
                         "Example:\n  ramet image commit 3f solved && ramet image export solved solved.raw",
                         Argument::kSandbox, [&line, &s] { return cmd_image_commit(s, line.image); });
  commit->add_option("sandbox", line.image.sandbox, "Id, start of it, or name")->required();
  commit->add_option("name", line.image.name, "Name of the image")->required();
  add(line, *group, "ls", "List images",
      "SIZE is that of the disk, STORED what it needs in the store, OWN the part that no other image or template needs.",
      Argument::kNone, [&s] { return cmd_image_ls(s); });
  CLI::App* rm = add(line, *group, "rm", "Remove images; whoever reads them goes on",
                     "Their space is given back in the background, as far as nothing else needs it.", Argument::kImage,
                     [&line, &s] { return cmd_image_rm(s, line.image); });
  rm->add_option("name", line.image.names, "Images")->required();
  CLI::App* diff = add(line, *group, "diff", "Show where two images of equal size differ",
                       "One range a line: offset and length in bytes, in blocks of 4,096; the first 1,000 of them.",
                       Argument::kImage, [&line, &s] { return cmd_image_diff(s, line.image); });
  diff->add_option("image", line.image.name, "Image")->required();
  diff->add_option("other", line.image.other, "The other one")->required();
}

void add_disk_source(CLI::App* command, DiskOptions& o) {
  command->add_option("image", o.image, "Image")->required();
  command->add_option("--writable", o.writable,
                      "Keep changes in this directory, which belongs to one server at a time (default: read-only)");
  command->add_option("--timeout", o.timeout, "How long reads wait for a daemon that is away before they fail (90s, 15m)")
      ->capture_default_str();
  command->add_option("--daemon-socket", o.daemon_socket,
                      "The daemon's chunk socket (default: chunk.sock beside its API socket)");
}

void add_disk_commands(Line& line, CLI::App& app) {
  Session& s = line.session;
  CLI::App* group = add(line, app, "disk", "Use the disk of an image from this computer", "", Argument::kNone, nullptr);
  group->require_subcommand(1);
  CLI::App* serve = add(
      line, *group, "serve", "Serve the disk of an image over NBD",
      "The URI is printed when clients can connect: qemu, nbdcopy, nbdinfo, nbd-client. With --writable they may change the\n"
      "disk; the image stays as it is, and the changes are there again next time. Several clients may connect at once.\n"
      "Everybody who reaches the socket or the port may use the disk. Ctrl-C ends the server when its clients have left, a\n"
      "second one at once; what they flushed is kept.\n\n"
      "Needs the package nbdkit.\n\n"
      "Examples:\n  ramet disk serve debian\n  ramet disk serve debian --writable ~/changes --socket /tmp/debian.sock\n"
      "  qemu-img convert -f raw -O qcow2 'nbd+unix:///?socket=/tmp/debian.sock' debian.qcow2\n"
      "  ramet disk serve debian --port 10809 --json",
      Argument::kNone, [&line, &s] { return cmd_disk_serve(s, line.disk); });
  add_disk_source(serve, line.disk);
  CLI::Option* socket = serve->add_option("--socket", line.disk.socket, "Listen on this unix socket (default: a new one)");
  serve->add_option("--port", line.disk.port, "Listen on this port of 127.0.0.1")
      ->check(CLI::Range(1, 65535))
      ->excludes(socket);

  CLI::App* mount = add(
      line, *group, "mount", "Show the disk of an image as a file",
      "The file is TARGET/nbd if TARGET is a directory, else TARGET itself, which covers an existing file and is made for as\n"
      "long as it takes otherwise. It is a disk, not its file system: mount that by a loop device, or read it with debugfs.\n"
      "Ctrl-C unmounts when no program uses the file, a second one at once.\n\n"
      "Needs the packages nbdkit, libnbd-bin and fuse3.\n\n"
      "Examples:\n  ramet disk mount debian disk.img\n  debugfs -R 'ls /etc' disk.img\n"
      "  ramet disk mount debian disk.img --writable ~/changes\n  mount -o loop disk.img /mnt",
      Argument::kFile, [&line, &s] { return cmd_disk_mount(s, line.disk); });
  add_disk_source(mount, line.disk);
  mount->add_option("target", line.disk.target, "Directory or file")->required();
}

void add_machine_commands(Line& line, CLI::App& app) {
  Session& s = line.session;
  CLI::App* group =
      add(line, app, "machine", "Start and stop the daemon on this computer",
          "Where KVM is usable the daemon runs natively; elsewhere in an emulated host (QEMU), slower, with the same code.",
          Argument::kNone, nullptr);
  group->require_subcommand(1);
  const std::pair<const char*, const char*> commands[] = {
      {"start", "Start it and wait until it answers"}, {"stop", "Stop it"},
      {"status", "Is it running, and where"},          {"logs", "The daemon's log"},
      {"console", "The emulated host's console"},      {"exec", "Run a command in the emulated host"}};
  for (const auto& [name, what] : commands) {
    CLI::App* command =
        add(line, *group, name, what, "What follows is passed on to machine/machine.", Argument::kNone, nullptr);
    command->fallthrough(false);
    command->allow_extras();  // what it does not know is the script's
    command->callback([&line, &s, command] {
      line.chosen = [&line, &s, command] {
        std::vector<std::string> words = command->remaining();
        words.insert(words.begin(), command->get_name());
        if (!line.after_dashes.empty()) words.push_back("--");
        words.insert(words.end(), line.after_dashes.begin(), line.after_dashes.end());
        std::erase_if(words, [&](const std::string& w) { return w == "--json" && (s.json = true); });
        return cmd_machine(s, words);
      };
    });
  }
}

CommandShape shape_of(const Line& line, const CLI::App& app) {
  CommandShape shape;
  shape.name = app.get_name();
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& l : option->get_lnames()) shape.options.push_back("--" + l);
    for (const std::string& c : option->get_snames()) shape.options.push_back("-" + c);
  }
  const auto found = line.arguments.find(&app);
  if (found != line.arguments.end()) shape.argument = found->second;
  for (const CLI::App* sub : app.get_subcommands(nullptr)) shape.commands.push_back(shape_of(line, *sub));
  return shape;
}

std::vector<std::string> names_from(Session& session, const char* target, const char* list, const char* field) {
  std::vector<std::string> names;
  const Result<const ApiClient*> api = session.api();
  if (!api) return names;
  const Result<boost::json::value> answer = (*api)->call("GET", target);
  if (!answer) return names;
  for (const boost::json::value& v : answer->at(list).as_array()) names.emplace_back(v.at(field).as_string());
  return names;
}

int print_candidates(Line& line, const CLI::App& app, const std::vector<std::string>& words) {
  const CompletionSources sources{[&line] { return names_from(line.session, "/v1/sandboxes", "sandboxes", "id"); },
                                  [&line] { return names_from(line.session, "/v1/templates", "templates", "name"); },
                                  [&line] { return names_from(line.session, "/v1/images", "images", "name"); }};
  for (const std::string& candidate : complete(shape_of(line, app), words, sources)) printf("%s\n", candidate.c_str());
  return 0;
}

// Splits off what comes after the first `--`: it belongs to the command in the sandbox, whatever it looks like.
std::vector<std::string> split_command(std::vector<std::string>& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes == words.end()) return {};
  std::vector<std::string> command(dashes + 1, words.end());
  words.erase(dashes, words.end());
  return command;
}

}  // namespace

int run_app(const std::vector<std::string>& all_words) {
  Line line;
  CLI::App app{kDescription, "ramet"};
  app.footer(footer());
  app.get_formatter()->column_width(36);
  app.set_version_flag("--version", std::string("ramet ") + RAMET_VERSION);
  app.require_subcommand(1);
  app.add_option("--url", line.session.url, "Server: unix:///PATH or http://HOST:PORT");
  app.add_flag("--json", line.session.json, "Print what the server answers as JSON");
  app.add_flag("-q,--quiet", line.session.quiet, "No words on stderr except errors");
  add_sandbox_commands(line, app);
  add_snapshot_commands(line, app);
  add_template_commands(line, app);
  add_image_commands(line, app);
  add_disk_commands(line, app);
  add_machine_commands(line, app);
  add(line, app, "doctor", "Check what this computer offers and what is missing", "", Argument::kNone,
      [&line] { return cmd_doctor(line.session); });
  CLI::App* completion = add(
      line, app, "completion", "Print the completion script of a shell",
      "  bash: eval \"$(ramet completion bash)\"\n  zsh:  eval \"$(ramet completion zsh)\"\n  fish: ramet completion fish > "
      "~/.config/fish/completions/ramet.fish",
      Argument::kShell, [&line] { return cmd_completion(line.shell); });
  completion->add_option("shell", line.shell, "bash, zsh or fish")->required();

  std::vector<std::string> words = all_words;
  if (!words.empty() && words.front() == "__complete")
    return print_candidates(line, app, std::vector<std::string>(words.begin() + 1, words.end()));
  line.after_dashes = split_command(words);
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 wants a vector
    app.parse(words);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  }
  line.exec.command.insert(line.exec.command.end(), line.after_dashes.begin(), line.after_dashes.end());
  line.run.exec.command = line.after_dashes;
  line.exec.interactive = line.exec.interactive || line.exec.terminal;
  line.run.exec.interactive = line.run.exec.interactive || line.run.exec.terminal;

  const bool passes_status =
      app.got_subcommand("exec") || (app.got_subcommand("run") && (!line.after_dashes.empty() || line.run.exec.terminal));
  try {
    const Result<int> status = line.chosen();
    if (status) return *status;
    line.session.print_error(status.error());
    return passes_status && status.error().kind() != ErrorKind::kInvalid ? kExitBeforeCommand
                                                                         : exit_status(status.error().kind());
  } catch (const boost::system::system_error& e) {  // a field of an answer is missing or of another type
    line.session.print_error(
        Error(ErrorKind::kCorrupt, std::string("the server's answer is not what this version of ramet expects: ") + e.what()));
  } catch (const std::out_of_range& e) {
    line.session.print_error(
        Error(ErrorKind::kCorrupt, std::string("the server's answer is not what this version of ramet expects: ") + e.what()));
  }
  return exit_status(ErrorKind::kCorrupt);
}

}  // namespace ramet::cli
