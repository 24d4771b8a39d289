"""`ramet disk serve` and `ramet disk mount` as their users meet them."""

import json
import os
import signal
import socket
import subprocess

import pytest

from server import BIN, run, wait_until

RAMET = BIN / "ramet"


class Command:
    """A `ramet disk ...` that goes on until it is interrupted; the first line that it prints is in `line`."""

    def __init__(self, folder, daemon, *words):
        self.log = open(folder / "ramet.log", "w+b")
        self.process = subprocess.Popen([RAMET, "disk", *map(str, words)], stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env={**daemon.environment, "RAMET_RUNTIME": str(folder / "run")})
        self.line = self.process.stdout.readline().strip()

    def words(self):
        self.log.seek(0)
        return self.log.read().decode()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def ends_with(self, status):
        assert self.process.wait(60) == status, self.words()
        self.process.stdout.close()
        self.log.close()

    def __enter__(self):
        assert self.line, self.words()
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.process.kill()
            return
        self.interrupt()
        self.ends_with(0)


def refused(folder, daemon, *words, status, **environment):
    done = subprocess.run([RAMET, "disk", *map(str, words)], capture_output=True, text=True, timeout=60, check=False,
                          env={**daemon.environment, "RAMET_RUNTIME": str(folder / "run"), **environment})
    assert done.returncode == status, done.stderr
    return done.stderr


def test_serve_prints_a_uri_that_can_be_used_and_leaves_nothing(folder, lasting_daemon, base):
    with Command(folder, lasting_daemon, "serve", "disk") as serve:
        run("qemu-img", "compare", "-f", "raw", "-F", "raw", serve.line, base)
    assert list((folder / "run").iterdir()) == []


def test_serve_writable_keeps_changes_until_next_time(folder, lasting_daemon):
    words = ("serve", "disk", "--writable", folder / "changes", "--socket", folder / "s.sock", "--json")
    with Command(folder, lasting_daemon, *words) as serve:
        row = json.loads(serve.line)
        assert row["writable"] and row["image"] == "disk" and row["socket"] == str(folder / "s.sock")
        run("qemu-io", "-f", "raw", "-c", "write -P 5 1000 5000", row["uri"])
    with Command(folder, lasting_daemon, *words) as serve:
        said = run("qemu-io", "-f", "raw", "-c", "read -P 5 1000 5000", json.loads(serve.line)["uri"])
        assert "failed" not in said
        assert "another server uses" in refused(folder, lasting_daemon, "serve", "disk", "--writable", folder / "changes", status=1)
        assert "listens" in refused(folder, lasting_daemon, "serve", "disk", "--socket", folder / "s.sock", status=4)


def test_serve_on_a_port(folder, lasting_daemon):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Command(folder, lasting_daemon, "serve", "disk", "--port", port) as serve:
        assert serve.line == f"nbd://127.0.0.1:{port}"
        run("nbdinfo", serve.line)


def test_a_killed_serve_takes_its_server_along_and_its_socket_is_used_again(folder, lasting_daemon):
    words = ("serve", "disk", "--socket", folder / "s.sock", "--json")
    first = Command(folder, lasting_daemon, *words)
    server = json.loads(first.line)["pid"]
    first.process.kill()
    first.ends_with(-signal.SIGKILL)
    wait_until(lambda: is_over(server), "nbdkit has ended")
    with Command(folder, lasting_daemon, *words) as again:
        run("nbdinfo", json.loads(again.line)["uri"])


def is_over(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"  # nobody here reaps it
    except FileNotFoundError:
        return True


def test_a_second_interrupt_ends_it_under_its_clients(folder, lasting_daemon):
    serve = Command(folder, lasting_daemon, "serve", "disk")
    path = serve.line.partition("socket=")[2]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        assert client.recv(8) == b"NBDMAGIC"
        serve.interrupt()
        wait_until(lambda: "interrupt once more" in serve.words(), "it says what it waits for")
        serve.interrupt()
        serve.ends_with(0)


def test_mistakes_get_an_answer(folder, lasting_daemon):
    assert "no image 'nothing'" in refused(folder, lasting_daemon, "serve", "nothing", status=3)
    said = refused(folder, lasting_daemon, "serve", "nothing", "--daemon-socket", lasting_daemon.socket, status=1)
    assert "no image 'nothing'" in said
    assert "apt install nbdkit" in refused(folder, lasting_daemon, "serve", "disk", status=8, PATH="/nowhere")
    assert "apt install libnbd-bin" in refused(folder, lasting_daemon, "mount", "disk", folder / "m", status=8, PATH="/nowhere")
    refused(folder, lasting_daemon, "serve", "disk", "--port", "0", status=2)
    (folder / "file").write_text("mine")
    assert "not a socket" in refused(folder, lasting_daemon, "serve", "disk", "--socket", folder / "file", status=4)
    assert (folder / "file").read_text() == "mine"


def test_no_daemon_is_told_with_what_to_do(folder):
    done = subprocess.run([RAMET, "disk", "serve", "disk"], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "RAMET_RUNTIME": str(folder), "RAMET_STATE": str(folder), "RAMET_URL": f"unix://{folder}/rametd.sock"})
    assert done.returncode == 6 and "chunk socket" in done.stderr and "--daemon-socket" in done.stderr


needs_fuse = pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="/dev/fuse cannot be opened")


@needs_fuse
@pytest.mark.parametrize("kind", ["new file", "directory"])
def test_mount_shows_the_disk_as_a_file_until_it_is_interrupted(folder, lasting_daemon, base, kind):
    target = folder / "target"
    if kind == "directory":
        target.mkdir()
    shown = target / "nbd" if kind == "directory" else target
    with Command(folder, lasting_daemon, "mount", "disk", target) as mount:
        assert mount.line == str(shown)
        run("cmp", shown, base)
        with pytest.raises(OSError):
            shown.write_bytes(b"x")
    assert target.exists() == (kind == "directory") and not (target / "nbd").exists()


@needs_fuse
def test_mount_writable_holds_a_file_system_and_waits_for_its_users(folder, lasting_daemon):
    words = ("mount", "disk", folder / "target", "--writable", folder / "changes")
    with Command(folder, lasting_daemon, *words):
        run("mkfs.ext4", "-q", "-F", folder / "target")
    mount = Command(folder, lasting_daemon, *words)
    run("e2fsck", "-f", "-n", folder / "target")
    with open(folder / "target", "rb"):
        mount.interrupt()
        wait_until(lambda: "programs that use" in mount.words(), "it says what it waits for")
        assert mount.process.poll() is None
    mount.ends_with(0)


@needs_fuse
def test_a_second_interrupt_unmounts_under_its_users(folder, lasting_daemon):
    mount = Command(folder, lasting_daemon, "mount", "disk", folder / "target")
    user = os.open(folder / "target", os.O_RDONLY)
    mount.interrupt()
    wait_until(lambda: "interrupt once more" in mount.words(), "it says what it waits for")
    mount.interrupt()
    mount.ends_with(0)
    with pytest.raises(OSError):
        os.close(user)
    assert not (folder / "target").exists()
