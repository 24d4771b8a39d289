"""A file system of a few MiB that a test really fills, and a rametd whose state lies on it. Neither needs KVM.

The disk is mounted in a mount namespace of a process of its own, so that nothing of it is left whatever happens here; from outside it is
reached through that process."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build/release/bin"
MIB = 1 << 20


def wait_until(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.02)


class SmallDisk:
    """`kind`: tmpfs, or ext4 on a loop device. None of it on this machine: OSError."""

    def __init__(self, folder, kind, mib=192):
        self.inside = folder / "disk"
        self.inside.mkdir()
        self.as_root = os.geteuid() == 0
        mount = f"mount -t tmpfs -o size={mib}m small '{self.inside}'"
        if kind == "ext4":
            medium = folder / "medium"
            with open(medium, "wb") as file:
                file.truncate(mib * MIB)
            subprocess.run(["mkfs.ext4", "-q", "-b", "4096", "-m", "0", medium], check=True)
            mount = f"mount -o loop '{medium}' '{self.inside}'"
        # It ends with us: then nobody holds the other end of its input.
        self.keeper = subprocess.Popen(["unshare", "-m" if self.as_root else "-rm", "sh", "-c", f"{mount} && echo there && exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.keeper.stdout.readline() != b"there\n":
            raise OSError(self.keeper.communicate()[1].decode())
        self.path = pathlib.Path(f"/proc/{self.keeper.pid}/root{self.inside}")
        self.ballast = self.path / "somebody-elses"

    def command(self, *words):
        spaces = ["-m"] if self.as_root else ["-U", "-m", "--preserve-credentials"]
        return ["nsenter", "-t", str(self.keeper.pid), *spaces, "--", *map(str, words)]

    def free_bytes(self):
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, but=0):
        """Somebody else takes all there is, but for so many bytes."""
        subprocess.run(["sync", "-f", self.path], check=True)
        with open(self.ballast, "ab") as file:
            end, step = file.tell(), self.free_bytes()
            while step >= 4096:
                step = min(step, self.free_bytes() - but)
                try:
                    if step > 0:
                        os.posix_fallocate(file.fileno(), end, step)
                        end += step
                except OSError:
                    step //= 2
                else:
                    if step < 4096:
                        break

    def free(self):
        self.ballast.unlink(missing_ok=True)

    def files(self, without=()):
        """Names and lengths of what lies in the state directory, but for what changes by itself."""
        state = self.path / "state"
        names = (path for path in sorted(state.rglob("*")) if path.is_file() and path.name not in {"ballast", *without})
        return {str(path.relative_to(state)): path.stat().st_size for path in names
                if not path.name.endswith(("-wal", "-shm")) and "cache" not in path.parts}

    def close(self):
        self.keeper.kill()
        self.keeper.communicate()


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    def __init__(self, status, content):
        self.status, self.content = status, content

    def json(self):
        return json.loads(self.content)


class Daemon:
    def __init__(self, folder, disk, **options):
        self.disk, self.runtime = disk, folder / "run"
        self.socket = self.runtime / "rametd.sock"
        self.log = disk.path / "rametd.log"
        self.options = {"memory-reserve-mib": 0, "disk-reserve-mib": 1, "chunk-cache-mib": 1, "store-interval": 1, **options}
        self.process = None

    def start(self):
        options = [f"--{name}={value}" for name, value in self.options.items()]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.disk.command(BIN / "rametd", "--state", self.disk.inside / "state", "--runtime", self.runtime, *options),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self.answers, "rametd answers")
        return self

    def answers(self):
        assert self.is_alive(), self.log.read_text()
        with contextlib.suppress(OSError):
            return self.call("GET", "/v1/health").status == 200

    def is_alive(self):
        return self.process.poll() is None

    def stop(self):
        self.process.terminate()
        assert self.process.wait(30) == 0, self.log.read_text()

    def restart(self):
        self.stop()
        self.start()

    def call(self, method, path, body=None, timeout=60, **query):
        """`body`: bytes, something for JSON, or pieces; each piece may be a function that is called instead of sent."""
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        with contextlib.closing(Connection(self.socket, timeout)) as connection:
            if isinstance(body, list):
                body = pieces_of(body)
            elif body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            try:
                connection.request(method, target, body=body, encode_chunked=True,
                                   headers={"Transfer-Encoding": "chunked"} if hasattr(body, "__next__") else {})
            except BrokenPipeError:
                pass  # it has answered already
            answer = connection.getresponse()
            return Answer(answer.status, answer.read())

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.is_alive():
            self.process.kill()
            self.process.wait()


def pieces_of(pieces):
    for piece in pieces:
        if callable(piece):
            piece()
        else:
            yield piece
