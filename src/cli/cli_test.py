#!/usr/bin/python3
"""The program `ramet` against the real HTTP server over a fake host: what users type and what they see.

cli_test.py RAMET API_FAKE_SERVER
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import termios
import time
import unittest

RAMET, SERVER = sys.argv[1], sys.argv[2]


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.server = subprocess.Popen([SERVER, cls.path / "api.sock", "127.0.0.1:0"], stdout=subprocess.PIPE)
        cls.address = cls.server.stdout.readline().split()[1].decode()
        cls.environment = {"PATH": os.environ["PATH"], "HOME": cls.folder.name, "RAMET_URL": f"unix://{cls.path}/api.sock",
                           "LC_ALL": "C.UTF-8", "TERM": "xterm"}

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        assert cls.server.wait(10) == 0
        cls.server.stdout.close()
        cls.folder.cleanup()

    def tearDown(self):
        self.ramet("kill", "--all")

    def ramet(self, *words, status=0, stdin=b"", **environment):
        done = subprocess.run([RAMET, *map(str, words)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                              env={**self.environment, **environment}, check=False)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout!r} {done.stderr!r}")
        self.stderr = done.stderr.decode()
        return done.stdout.decode(errors="replace")

    def box(self, *words):
        return self.ramet("run", "base", *words).strip()

    # -- sandboxes

    def test_run_prints_only_the_id(self):
        self.assertRegex(self.ramet("run", "base"), r"^[0-9a-z-]+\n$")

    def test_run_with_a_command_passes_its_status(self):
        self.assertEqual(self.ramet("run", "base", "--rm", "--", "sh", "-c", "echo hi; exit 9", status=9), "hi\n")
        self.assertEqual(json.loads(self.ramet("ls", "--json"))["sandboxes"], [])

    def test_ls_shows_a_table_and_json(self):
        box = self.box("--name", "one", "--ttl", "2h")
        self.assertRegex(self.ramet("ls"), rf"SANDBOX +TEMPLATE.*\n{box} +base +running +\d+s +[12]h +0 +- +name=one\n")
        self.assertEqual(json.loads(self.ramet("ls", "--json"))["sandboxes"][0]["id"], box)
        self.assertNotIn(box, self.ramet("ls", "--label", "name=two"))

    def test_prefix_and_name_are_enough(self):
        box = self.box("--name", "work")
        self.box()
        self.assertEqual(self.ramet("exec", box[:3], "--", "echo", "x"), "x\n")
        self.assertEqual(self.ramet("exec", "work", "--", "echo", "x"), "x\n")

    def test_fork_prints_children_and_timing(self):
        box = self.box()
        self.assertEqual(len(self.ramet("fork", box, "-n", 3).splitlines()), 4)
        self.assertIn("parent paused 4.50 ms", self.stderr)
        self.assertEqual(json.loads(self.ramet("fork", box, "--json"))["children"][0]["parent_id"], box)

    def test_snapshots_are_made_listed_used_and_removed(self):
        box = self.box()
        made = self.ramet("snapshot", "create", box, "--name", "warm", "--keep", "2h").strip()
        self.assertIn("paused 2.50 ms", self.stderr)
        self.assertIn("1200 KiB of memory and 2 chunks of disk", self.stderr)
        self.assertIn("warm", self.ramet("snapshot", "ls"))
        self.assertEqual(json.loads(self.ramet("snapshot", "ls", "--json"))["snapshots"][0]["id"], made)
        self.assertTrue(self.ramet("run", "--snapshot", "warm").strip())
        self.assertEqual(self.ramet("snapshot", "rm", "warm").strip(), "warm")
        self.ramet("snapshot", "rm", "warm", status=3)
        self.assertIn("no snapshot", self.stderr)

    def test_rollback(self):
        box = self.box()
        self.ramet("snapshot", "create", box, "--name", "warm")
        self.ramet("pause", box)
        self.assertEqual(self.ramet("rollback", box[:4], "warm").strip(), box)
        self.assertEqual(json.loads(self.ramet("rollback", box, "warm", "--json"))["state"], "running")
        self.ramet("rollback", box, "cold", status=3)
        self.ramet("snapshot", "rm", "warm")

    def test_pause_and_resume(self):
        box = self.box()
        self.assertEqual(self.ramet("pause", box).strip(), box)
        self.assertIn("paused", self.ramet("ls"))
        self.ramet("pause", box, status=4)
        self.assertIn("paused", self.stderr)
        self.assertEqual(json.loads(self.ramet("resume", box, "--json"))["sandboxes"][0]["state"], "running")

    def test_a_sandbox_can_pause_when_idle(self):
        self.box("--pause-when-idle", "15m")
        self.assertEqual(json.loads(self.ramet("ls", "--json"))["sandboxes"][0]["idle_seconds"], 900)
        self.ramet("run", "base", "--pause-when-idle", "soon", status=2)

    def test_partial_fork_tells_which_failed(self):
        out = self.ramet("fork", self.box(), "-n", 3, "--partial", "--label", "fail=1", status=1)
        self.assertEqual(len(out.splitlines()), 3)
        self.assertIn("child 1 does not fit", self.stderr)

    def test_a_busy_guest_is_told_with_what_to_do(self):
        box = self.ramet("run", "stuck").strip()
        self.ramet("fork", box, status=4)
        self.assertIn("2 tasks did not stand still within 500 ms", self.stderr)
        self.assertIn("strict", self.stderr)
        self.ramet("fork", box, "--no-strict")

    def test_tree_draws_families(self):
        box = self.box()
        child = json.loads(self.ramet("fork", box, "--json"))["children"][0]["id"]
        self.assertRegex(self.ramet("tree"), rf"\n{box} .*\n└─ {child} .*3.0 MiB +1.0 MiB +40.0 KiB\n")
        self.assertIn(f"`- {child}", self.ramet("tree", LC_ALL="C"))

    def test_kill_goes_on_after_a_failure(self):
        a, b = self.box(), self.box()
        self.assertEqual(self.ramet("kill", a, b), f"{a}\n{b}\n")
        self.ramet("kill", "nothere", status=3)
        self.ramet("kill", status=2)

    def test_logs(self):
        self.assertIn("ramet-guest: ready", self.ramet("logs", self.box()))

    # -- exec

    def test_exec_separates_output_and_status(self):
        self.assertEqual(self.ramet("exec", self.box(), "--", "sh", "-c", "echo out; echo err >&2; exit 4", status=4), "out\n")
        self.assertEqual(self.stderr, "err\n")

    def test_exec_of_a_killed_command_is_128_and_the_signal(self):
        self.ramet("exec", self.box(), "--", "sh", "-c", "kill -9 $$", status=137)

    def test_exec_keeps_every_byte(self):
        box = self.box()
        data = bytes(range(256)) * 5000
        done = subprocess.run([RAMET, "exec", "-i", box, "--", "cat"], input=data, stdout=subprocess.PIPE, env=self.environment, timeout=60, check=True)
        self.assertEqual(done.stdout, data)

    def test_exec_without_i_reads_nothing(self):
        self.assertEqual(self.ramet("exec", self.box(), "--", "wc", "-c", stdin=b"ignored").strip(), "0")

    def test_exec_gives_env_cwd_and_timeout(self):
        box = self.box()
        self.assertEqual(self.ramet("exec", box, "-e", "A=1 2", "-w", "/", "--", "sh", "-c", "echo $A; pwd"), "1 2\n/\n")
        self.ramet("exec", box, "--timeout", "1s", "--", "sleep", "50", status=137)
        self.assertIn("ended after 1s", self.stderr)

    def test_exec_json_is_one_object(self):
        result = json.loads(self.ramet("exec", self.box(), "--json", "--", "sh", "-c", "echo a; exit 2", status=2))
        self.assertEqual((result["stdout"], result["exit_code"]), ("a\n", 2))

    def test_detached_command_is_listed(self):
        box = self.box()
        pid = self.ramet("exec", "-d", box, "--", "sleep", "60").strip()
        self.assertRegex(self.ramet("ps", box), rf" *{pid} +user +running +sleep 60\n")

    def test_signals_reach_the_command(self):
        box = self.box()
        script = "trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
        process = subprocess.Popen([RAMET, "exec", box, "--", "sh", "-c", script], stdout=subprocess.PIPE, env=self.environment)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.communicate(timeout=30)[0], b"got it\n")
        self.assertEqual(process.returncode, 3)

    def test_a_killed_client_ends_its_command(self):
        box = self.box()
        process = subprocess.Popen([RAMET, "exec", box, "--", "sleep", "60"], env=self.environment)
        self.wait_until(lambda: "running" in self.ramet("ps", box))
        process.kill()
        process.wait()
        self.wait_until(lambda: "running" not in self.ramet("ps", box))

    def wait_until(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)

    def test_terminal_passes_size_keys_resize_and_status(self):
        box = self.box()
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(RAMET, [RAMET, "exec", "-t", box, "-e", "PS1=> ", "--", "sh"], self.environment)
        seen = b""

        def wait_for(text):
            nonlocal seen
            end = time.monotonic() + 20
            while text not in seen and time.monotonic() < end:
                if select.select([terminal], [], [], 0.5)[0]:
                    seen += os.read(terminal, 65536)
            self.assertIn(text, seen)

        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        wait_for(b"> ")
        os.write(terminal, b"sleep 100\r")
        time.sleep(0.3)
        os.write(terminal, b"\x03echo after-$((40+2))\r")
        wait_for(b"after-42")
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 21, 51, 0, 0))
        time.sleep(0.5)
        os.write(terminal, b"stty size\r")
        wait_for(b"21 51")
        os.write(terminal, b"exit 6\r")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 6)
        os.close(terminal)

    # -- files

    def test_cp_of_a_file_both_ways(self):
        box = self.box()
        data = os.urandom(3_000_000)
        (self.path / "file").write_bytes(data)
        (self.path / "file").chmod(0o750)
        self.ramet("cp", self.path / "file", f"{box}:{self.path}/in/")
        self.assertEqual((self.path / "in/file").read_bytes(), data)
        self.ramet("cp", f"{box}:{self.path}/in/file", self.path / "out")
        self.assertEqual((self.path / "out").read_bytes(), data)
        self.assertEqual((self.path / "out").stat().st_mode & 0o777, 0o750)

    def test_cp_of_a_directory_keeps_links(self):
        box = self.box()
        (self.path / "tree/sub").mkdir(parents=True)
        (self.path / "tree/sub/a").write_bytes(b"a" * 300_000)
        (self.path / "tree/link").symlink_to("sub/a")
        self.ramet("cp", self.path / "tree", f"{box}:{self.path}/tree-in")
        self.ramet("cp", f"{box}:{self.path}/tree-in", self.path / "tree-out")
        self.assertEqual((self.path / "tree-out/sub/a").read_bytes(), b"a" * 300_000)
        self.assertEqual(os.readlink(self.path / "tree-out/link"), "sub/a")

    def test_cp_says_what_is_missing(self):
        box = self.box()
        self.ramet("cp", f"{box}:/not/here", self.path / "x", status=3)
        self.assertIn("there is no `/not/here`", self.stderr)
        self.assertFalse((self.path / "x").exists())
        self.ramet("cp", self.path / "not-here", f"{box}:/tmp/x", status=3)
        self.ramet("cp", "a", "b", status=2)

    # -- images

    def test_images_go_in_and_out_and_are_compared(self):
        raw = self.path / "raw"
        raw.write_bytes(bytes(1 << 20) + b"x" * 5000 + bytes(3192))
        self.assertIn("one: 1.0 MiB", self.ramet("image", "import", raw, "one"))
        image = json.loads(self.ramet("image", "import", raw, "two", "--parent", "one", "--json"))
        self.assertEqual((image["name"], image["bytes"]), ("two", raw.stat().st_size))
        self.assertIn("one", self.ramet("image", "ls"))
        self.assertEqual(len(json.loads(self.ramet("image", "ls", "--json"))["images"]), 2)
        out = self.path / "exported.raw"
        self.ramet("image", "export", "one", out)
        self.assertEqual(out.read_bytes(), raw.read_bytes())
        self.assertLess(out.stat().st_blocks * 512, 100_000)
        self.ramet("image", "export", "one", out, status=4)
        changed = bytearray(raw.read_bytes())
        changed[4096] = 1
        raw.write_bytes(changed)
        self.ramet("image", "import", raw, "three")
        self.assertEqual(self.ramet("image", "diff", "one", "three"), "4096 4096\n")
        self.assertEqual(self.ramet("image", "diff", "one", "two"), "")
        self.ramet("image", "import", raw, "three", status=4)
        self.ramet("image", "rm", "one", "two", "three")
        self.ramet("image", "rm", "one", status=3)

    def test_images_come_as_what_they_are(self):
        root = self.path / "root"
        (root / "etc").mkdir(parents=True)
        (root / "etc/hostname").write_text("made of files\n")
        (root / "link").symlink_to("etc/hostname")
        before = set(self.path.iterdir())
        self.ramet("image", "import", root, "dir", "--disk-mib", 64)
        subprocess.run(["tar", "-C", root, "-cJf", self.path / "root.tar.xz", "."], check=True)
        self.ramet("image", "import", self.path / "root.tar.xz", "tar", "--disk-mib", 64)
        for name in ("dir", "tar"):
            disk = self.path / f"{name}.qcow2"
            self.ramet("image", "export", name, disk, "--format", "qcow2")
            self.assertIn("qcow2", subprocess.run(["qemu-img", "info", disk], check=True, stdout=subprocess.PIPE).stdout.decode())
            raw = self.path / f"{name}.raw"
            subprocess.run(["qemu-img", "convert", "-O", "raw", disk, raw], check=True)
            shown = subprocess.run(["/sbin/debugfs", "-R", "cat /etc/hostname", raw], check=True, stdout=subprocess.PIPE).stdout
            self.assertEqual(shown, b"made of files\n")
            raw.unlink()
            disk.unlink()
        (self.path / "root.tar.xz").unlink()
        self.assertEqual(set(self.path.iterdir()), before)
        self.ramet("image", "import", root, "no", "--format", "qcow2", status=2)
        self.assertIn("is a directory", self.stderr)
        for out in ("files.tar", "files/"):
            self.ramet("image", "export", "dir", f"{self.path}/{out}")
        with tarfile.open(self.path / "files.tar") as archive:
            self.assertEqual(archive.getnames(), [".", "./link", "./etc", "./etc/hostname"])
        self.assertEqual(subprocess.run(["diff", "-r", "--no-dereference", root, self.path / "files"], check=False).returncode, 0)
        self.ramet("image", "export", "dir", self.path / "files.oci.tar")
        self.ramet("image", "export", "dir", f"{self.path}/as-oci/", "--format", "oci")
        for source in ("files.oci.tar", "as-oci"):
            self.ramet("image", "import", self.path / source, "again", "--tag", "dir")
            self.ramet("image", "export", "again", f"{self.path}/again/")
            subprocess.run(["diff", "-r", "--no-dereference", root, self.path / "again"], check=True)
            subprocess.run(["rm", "-r", self.path / "again", self.path / source], check=True)
            self.ramet("image", "rm", "again")
        self.ramet("image", "export", "dir", self.path / "files", "--format", "dir", status=4)
        self.ramet("image", "export", "dir", self.path / "files.tar.gz", status=2)
        self.assertIn("compress that", self.stderr)
        subprocess.run(["rm", "-r", self.path / "files", self.path / "files.tar"], check=True)
        self.ramet("image", "export", "dir", self.path / "x", "--format", "vmdk", status=2)
        self.assertFalse((self.path / "x").exists())
        self.ramet("image", "rm", "dir", "tar")

    def test_a_full_disk_here_is_named_and_leaves_nothing(self):
        """With nothing free, then a page more each time, until it succeeds."""
        root, small = self.path / "few", self.path / "small"
        root.mkdir()
        small.mkdir()
        (root / "noise").write_bytes(os.urandom(9000))
        (self.path / "raw").write_bytes(bytes(1 << 20) + os.urandom(20000) + bytes(1 << 20))
        self.ramet("image", "import", root, "few", "--disk-mib", 64)
        self.ramet("image", "import", self.path / "raw", "disk")
        for name, out in (("disk", "out.raw"), ("few", "out.tar"), ("few", "out.oci.tar"), ("few", "out/")):
            loop = f"""
                mount -t tmpfs -o size=512k none {small} || exit 77
                for room in $(seq 0 4 508); do
                    rm -f {small}/ballast; head -c $((512 - room))k /dev/zero > {small}/ballast
                    {RAMET} -q image export {name} {small}/{out} && echo $room && exit
                    [ $(ls -A {small}) = ballast ] || exit 9
                done"""
            done = subprocess.run(["unshare", "--mount", "--map-root-user", "sh", "-c", loop], env=self.environment,
                                  capture_output=True, text=True, timeout=120, check=False)
            if done.returncode == 77:
                self.skipTest("no mount namespaces here: " + done.stderr)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(int(done.stdout), 0)
            said = [line for line in done.stderr.splitlines() if "No space left" in line]
            self.assertEqual(len(said), int(done.stdout) // 4, done.stderr)
            self.assertEqual([line for line in said if str(small) not in line], [])
        self.ramet("image", "rm", "few", "disk")

    def test_a_refused_image_says_why(self):
        (self.path / "bad.vmdk").write_bytes(b"KDMV" + bytes(5000))
        self.ramet("image", "import", self.path / "bad.vmdk", "bad", status=2)
        self.assertIn("looks like VMDK", self.stderr)
        self.assertIn("qemu-img convert", self.stderr)
        layout = self.path / "layout"
        layout.mkdir()
        (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        self.ramet("image", "import", layout, "bad", status=3)
        self.assertIn("index.json", self.stderr)

    def test_the_disk_of_a_sandbox_becomes_an_image(self):
        box = self.box()
        self.assertIn("branch: 4.0 KiB", self.ramet("image", "commit", box[:3], "branch"))
        self.ramet("image", "export", "branch", self.path / "branch.raw")
        self.assertTrue((self.path / "branch.raw").read_bytes().startswith(box.encode()))
        self.ramet("image", "commit", box, "branch", status=4)
        self.ramet("image", "commit", "nothere", "other", status=3)
        self.ramet("image", "commit", self.ramet("run", "stuck").strip(), "stuck")
        self.assertIn("as after a loss of power: the file system could not be frozen", self.stderr)
        self.ramet("image", "rm", "branch", "stuck")

    # -- templates

    def test_template_push_skips_what_is_there(self):
        folder = self.path / "template"
        folder.mkdir()
        for name in ("vmlinux", "initrd", "disk.img"):
            (folder / name).write_bytes(name.encode() * 1000)
        with open(folder / "disk.img", "r+b") as disk:
            disk.truncate(50_000_000)
        files = {n: {"bytes": (folder / n).stat().st_size, "sha256": "0" * 64} for n in ("vmlinux", "initrd", "disk.img")}
        (folder / "template.json").write_text(json.dumps({"format": 1, "name": "mine", "kernel_release": "6", "vcpus": 1, "memory_mib": 256,
                                                          "disk_bytes": 50_000_000, "cmdline": "", "files": files}))
        self.assertEqual(json.loads(self.ramet("template", "push", folder, "--json"))["name"], "mine")
        self.assertFalse(json.loads(self.ramet("template", "push", folder, "--json")).get("uploaded", True) is True)
        self.assertIn("mine", self.ramet("template", "ls"))
        self.ramet("template", "rm", "mine")
        self.ramet("template", "rm", "mine", status=3)

    # -- the rest

    def test_errors_have_a_hint_and_a_status(self):
        self.ramet("run", "nothere", status=3)
        self.assertIn("there is no template `nothere`", self.stderr)
        self.assertIn("ramet template ls", self.stderr)
        self.ramet("run", "full", status=5)
        self.ramet("exec", "nothere", "--", "true", status=125)
        self.ramet("exec", self.box(), status=2)
        self.ramet("frobnicate", status=2)
        self.ramet("run", "base", "--ttl", "soon", status=2)
        self.ramet("ls", "--url", "http://127.0.0.1:1", status=6)

    def test_json_errors(self):
        self.ramet("run", "nothere", "--json", status=3)
        self.assertEqual(json.loads(self.stderr)["error"]["code"], "not_found")

    def test_works_over_tcp(self):
        self.assertEqual(self.ramet("ls", "--json", RAMET_URL=f"http://{self.address}"), '{"sandboxes":[]}\n')

    def test_finds_the_machine_by_its_file(self):
        state = self.path / "state"
        (state / "machine").mkdir(parents=True)
        document = {"url": f"http://{self.address}", "pid": os.getpid()}
        (state / "machine/machine.json").write_text(json.dumps(document))
        where = {"RAMET_URL": "", "RAMET_STATE": str(state), "RAMET_RUNTIME": str(self.path / "nobody")}
        self.ramet("ls", **where)
        (state / "machine/machine.json").unlink()
        self.ramet("ls", status=6, **where)
        self.assertIn("ramet machine start", self.stderr)

    def test_machine_and_template_build_run_their_scripts(self):
        scripts = self.path / "libexec"
        for name in ("machine/machine", "templates/build"):
            (scripts / name).parent.mkdir(parents=True)
            (scripts / name).write_text('#!/bin/sh\necho "${0##*/} $@"\nexit 7\n')
            (scripts / name).chmod(0o755)
        self.assertEqual(self.ramet("machine", "exec", "--json", "--", "ls", "-l", status=7, RAMET_LIBEXEC=str(scripts)), "machine exec --json -- ls -l\n")
        self.assertEqual(self.ramet("machine", "start", "--emulated", status=7, RAMET_LIBEXEC=str(scripts)), "machine start --emulated\n")
        self.assertIn("build base", self.ramet("template", "build", "base", status=1, RAMET_LIBEXEC=str(scripts)))

    def build(self, *words, **how):
        return self.ramet("template", "build", "web", *words, **how)

    def test_template_build_goes_on_at_the_first_step_that_is_another(self):
        log, source = self.path / "log", self.path / "source"
        source.write_text("one")
        plan = {"steps": [{"env": {"WORD": "hi"}}, {"run": f"echo a$WORD | tee -a {log}"}, {"copy": "source", "to": str(self.path / "copied")},
                          {"run": f"cat {self.path}/copied >> {log}; echo c >> {log}"},
                          {"start": f"echo started >> {log}; exec sleep 100", "ready": f"grep -q started {log}", "ready_seconds": 20}]}
        (self.path / "web.json").write_text(json.dumps(plan))
        file = str(self.path / "web.json")
        self.build("-f", file)
        self.assertEqual(log.read_text(), "ahi\nonec\nstarted\n")
        self.assertIn("  ahi\n", self.stderr)
        self.assertTrue(self.ramet("run", "web", "--name", "of-web").strip())
        self.build("-f", file)
        self.assertEqual(log.read_text(), "ahi\nonec\nstarted\n", "nothing is done again")
        self.assertIn("step 5/5: start", self.stderr)
        source.write_text("two")
        made = json.loads(self.build("-f", file, "--json"))
        self.assertEqual(log.read_text(), "ahi\nonec\nstarted\ntwoc\nstarted\n")
        self.assertEqual((made["name"], made["env"], made["files"]), ("web", {"WORD": "hi"}, {}))
        self.build("-f", file, "--fresh")
        self.assertEqual(log.read_text().count("ahi"), 2)
        left = json.loads(self.ramet("ls", "--json"))["sandboxes"]
        self.assertEqual(len(left), 1, "its sandbox is gone, that of the template is not")

    def test_template_build_names_the_step_that_fails(self):
        self.build("--step", "run echo before; echo the reason >&2; exit 3", "--step", "run true", status=1)
        self.assertIn("step 1 of 2 (`run echo before; echo the reason >&2; exit 3`) ended with exit code 3; its output ends with:\nbefore\nthe reason", self.stderr)
        self.build("--from", "nothere", "--step", "run true", status=3)
        self.build("--step", "walk", status=2)
        never = {"steps": [{"start": "sleep 50", "ready": "echo no; exit 4", "ready_seconds": 1}]}
        (self.path / "never.json").write_text(json.dumps(never))
        self.build("-f", str(self.path / "never.json"), status=7)
        self.assertIn("the check `echo no; exit 4` still ends with exit code 4 after 1 s; its output ends with:\nno", self.stderr)
        never["steps"][0]["start"] = "echo dead; exit 5"
        (self.path / "never.json").write_text(json.dumps(never))
        self.build("-f", str(self.path / "never.json"), status=1)
        self.assertIn("ended with exit code 5 before it was ready; its output ends with:\ndead", self.stderr)

    def test_doctor_reports_all(self):
        done = subprocess.run([RAMET, "doctor", "--json"], stdout=subprocess.PIPE, env=self.environment, timeout=60, check=False)
        findings = {f["name"]: f for f in json.loads(done.stdout)["findings"]}
        self.assertEqual(set(findings), {"kvm", "qemu", "cgroup", "memory", "state", "userfaultfd", "server", "store"})
        self.assertEqual(findings["server"]["level"], "ok")
        for finding in findings.values():
            self.assertTrue(finding["level"] == "ok" or finding["hint"], finding)

    def test_help_is_a_page_with_examples_and_statuses(self):
        text = self.ramet("--help")
        for part in ("Examples:", "Environment:", "Exit status:", "RAMET_URL"):
            self.assertIn(part, text)
        for command in re.findall(r"^  (\w+) {2,}\S", text.split("Subcommands:")[1].split("Examples:")[0], re.M):
            self.assertIn("--help", self.ramet(command, "--help"))

    def test_completion_scripts_are_accepted_by_their_shells(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.ramet("completion", shell)
            self.assertIn("__complete", script)
        checked = subprocess.run(["bash", "-n"], input=self.ramet("completion", "bash").encode(), check=False)
        self.assertEqual(checked.returncode, 0)
        self.ramet("completion", "tcsh", status=2)

    def test_bash_completes_ids(self):
        box = self.box()
        script = f'{self.ramet("completion", "bash")}\nCOMP_WORDS=(ramet exec "{box[:2]}"); COMP_CWORD=2; COMP_LINE="ramet exec {box[:2]}"; ' \
                 'COMP_POINT=${#COMP_LINE}; _ramet; echo "${COMPREPLY[@]}"'
        path = f"{pathlib.Path(RAMET).parent}:{self.environment['PATH']}"
        done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, env={**self.environment, "PATH": path}, check=True)
        self.assertEqual(done.stdout.decode().strip(), box)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
