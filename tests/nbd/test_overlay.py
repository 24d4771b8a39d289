"""The private overlay: kept across restarts and kills, and for one server and one base only."""

import errno
import json
import random
import shutil
import subprocess
import threading

import nbd
import pytest

from server import PLUGIN, Server, effort, run

BLOCK = 4096
BLOCKS = 64  # written again and again, from 8 MiB on
START = 8 << 20


def block_of(version):
    return version.to_bytes(8, "little") * (BLOCK // 8)


class Writer(threading.Thread):
    """Writes blocks of rising versions, zeroes some, flushes now and then, until the server is gone."""

    def __init__(self, server, seed, versions):
        super().__init__()
        self.client = server.connect()
        self.random = random.Random(seed)
        self.allowed = versions  # block -> versions it may have: what was flushed, and all that was sent since
        self.latest = [None] * BLOCKS  # acknowledged
        self.next = max(max(v) for v in versions) + 1
        self.flushes = 0

    def run(self):
        try:
            while True:
                for _ in range(self.random.randint(1, 30)):
                    self.change(self.random.randrange(BLOCKS))
                self.client.flush()
                self.allowed = [versions if latest is None else {latest} for latest, versions in zip(self.latest, self.allowed)]
                self.flushes += 1
        except nbd.Error:
            pass

    def change(self, block):
        version = 0 if self.random.random() < 0.2 else self.next
        self.next += 1
        self.allowed[block].add(version)  # before it is sent: an answer may never come
        if version == 0:
            self.client.zero(BLOCK, START + block * BLOCK)
        else:
            self.client.pwrite(block_of(version), START + block * BLOCK)
        self.latest[block] = version


def test_what_was_flushed_survives_kill_9_and_nothing_is_older(folder, source):
    server = Server(folder, **source, overlay=folder / "overlay")
    versions = [{0} for _ in range(BLOCKS)]  # the base is zero there
    pauses = random.Random(4)
    flushes = 0
    for turn in range(effort(100, 8)):
        server.start()
        writer = Writer(server, turn, versions)
        writer.start()
        writer.join(timeout=0.1 + pauses.random() * 0.4)
        server.kill()
        writer.join()
        flushes += writer.flushes
        with server:
            client = server.connect()
            found = [client.pread(BLOCK, START + block * BLOCK) for block in range(BLOCKS)]
        versions = []
        for block, content in enumerate(found):
            version = int.from_bytes(content[:8], "little")
            assert content == block_of(version), f"turn {turn}: block {block} is torn"
            assert version in writer.allowed[block], f"turn {turn}: block {block} has {version}, not one of {writer.allowed[block]}"
            versions.append({version})
    assert flushes > 0


@pytest.mark.parametrize("change", ["pwrite", "zero"])
def test_a_change_with_fua_survives_kill_9(folder, base, change):
    server = Server(folder, file=base, overlay=folder / "overlay").start()
    client = server.connect()
    if change == "pwrite":
        client.pwrite(b"f" * BLOCK, 0, nbd.CMD_FLAG_FUA)
    else:
        client.zero(BLOCK, 0, nbd.CMD_FLAG_FUA)
    server.kill()
    with server:
        assert server.connect().pread(BLOCK, 0) == (b"f" if change == "pwrite" else b"\0") * BLOCK


@pytest.fixture
def small_disk(folder):
    """A file system of 4 MiB."""
    path = folder / "small"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield path
    run("umount", path)


def test_a_full_disk_is_an_error_for_writers_only_and_passes(folder, base, small_disk):
    (small_disk / "ballast").write_bytes(bytes(2 << 20))
    content = base.read_bytes()
    with Server(folder, file=base, overlay=small_disk / "overlay") as server:
        client = server.connect()
        client.pwrite(b"a" * BLOCK, 0)
        client.flush()
        with pytest.raises(nbd.Error) as caught:
            for block in range(1, 4 << 8):
                client.pwrite(b"b" * BLOCK, block * BLOCK)
        assert caught.value.errnum == errno.ENOSPC
        written = block
        assert client.pread(BLOCK, 0) == b"a" * BLOCK
        assert client.pread(BLOCK, (written + 1) * BLOCK) == content[(written + 1) * BLOCK:(written + 2) * BLOCK]
        (small_disk / "ballast").unlink()
        client.pwrite(b"c" * BLOCK, written * BLOCK)
        client.flush()
        server.kill()
    with server:
        found = server.connect().pread((written + 1) * BLOCK, 0)
    assert found == b"a" * BLOCK + b"b" * (written - 1) * BLOCK + b"c" * BLOCK


def test_an_end_in_peace_keeps_what_was_not_flushed(folder, base):
    server = Server(folder, file=base, overlay=folder / "overlay")
    with server:
        server.connect().pwrite(b"kept", 5)
    with server:
        assert server.connect().pread(4, 5) == b"kept"
    assert base.read_bytes()[5:9] != b"kept"


def test_extents_are_the_holes_of_the_base_and_of_the_overlay(folder, base):
    with Server(folder, file=base, overlay=folder / "overlay") as server:
        run("qemu-io", "-f", "raw", "-c", "write -z -u 1M 64k", "-c", "write 40M 4k", server.uri)
        rows = json.loads(run("nbdinfo", "--json", "--map", server.uri))
    kinds = [(row["offset"], row["length"], row["type"]) for row in rows]
    assert kinds == [(0, 1 << 20, 0), (1 << 20, 64 << 10, 3), ((1 << 20) + (64 << 10), (2 << 20) - (64 << 10), 0),
                     (3 << 20, 17 << 20, 3), (20 << 20, 1_003_520, 0),
                     ((20 << 20) + 1_003_520, (20 << 20) - 1_003_520, 3), (40 << 20, 4096, 0), ((40 << 20) + 4096, (24 << 20) - 4096, 3)]


def refused(**parameters):
    return run("nbdkit", "-f", "-U", "-", PLUGIN, *(f"{k}={v}" for k, v in parameters.items()), status=1, timeout=20)


def test_two_servers_cannot_share_an_overlay(writable, folder, base):
    assert "another server uses" in refused(file=base, overlay=folder / "overlay")


def test_an_overlay_is_refused_over_a_changed_base(folder, base):
    mine = shutil.copy(base, folder / "base.raw")
    with Server(folder, file=mine, overlay=folder / "overlay"):
        pass
    with open(mine, "r+b") as file:
        file.write(b"changed")
    assert "lies over" in refused(file=mine, overlay=folder / "overlay")


def test_a_damaged_log_is_an_error_and_never_an_empty_disk(folder, base):
    with Server(folder, file=base, overlay=folder / "overlay") as server:
        run("qemu-io", "-f", "raw", "-c", "write -P 9 0 64k", "-c", "flush", server.uri)
    with open(folder / "overlay/overlay.log", "r+b") as log:
        log.write(bytes(8192))
    assert "corrupt" in refused(file=base, overlay=folder / "overlay")


def test_mistakes_are_told(folder, base):
    assert "either image= or file=" in refused(timeout=5)
    assert "No such file" in refused(file=folder / "nothing")
    assert "unknown parameter 'colour'" in refused(file=base, colour="red")
    assert "not a regular file" in refused(file=folder)


def test_help_names_every_parameter():
    text = subprocess.run(["nbdkit", str(PLUGIN), "--help"], capture_output=True, text=True, check=True).stdout
    for word in ("image=", "socket=", "file=", "overlay=", "timeout="):
        assert word in text
