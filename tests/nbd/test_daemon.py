"""Disks whose blocks come from a daemon, and what clients see when it dies, comes back, or has another image by then."""

import errno
import json
import random
import threading
import time

import nbd
import pytest

from daemon import Daemon
from server import PLUGIN, Server, effort, run

BLOCK = 4096
DISK = 64 << 20
DATA = 3 << 20  # noise at the start of the base


@pytest.fixture
def daemon(folder, base):
    with Daemon(folder, {"disk": base}) as running:
        yield running


def test_extents_are_chunks_that_the_image_has(folder, daemon):
    with Server(folder, **daemon.parameters("disk")) as server:
        rows = json.loads(run("nbdinfo", "--json", "--map", server.uri))
    assert [(row["offset"], row["length"], row["type"]) for row in rows] == [(0, 32 << 20, 0), (32 << 20, 32 << 20, 3)]


def test_an_image_that_is_not_there_is_named(folder, daemon):
    said = run("nbdkit", "-f", "-U", "-", PLUGIN, "image=nothing", f"socket={daemon.socket}", status=1, timeout=20)
    assert "no image 'nothing'" in said


def test_no_daemon_is_told_at_once(folder):
    said = run("nbdkit", "-f", "-U", "-", PLUGIN, "disk", f"socket={folder}/none.sock", status=1, timeout=20)
    assert "none.sock: No such file" in said


class Reader(threading.Thread):
    """One read, which may take its time."""

    def __init__(self, client, offset):
        super().__init__()
        self.client, self.offset, self.found = client, offset, None

    def run(self):
        self.found = self.client.pread(BLOCK, self.offset)


def test_reads_wait_for_a_dead_daemon_and_go_on(folder, base, daemon):
    with Server(folder, **daemon.parameters("disk"), overlay=folder / "overlay") as server:
        daemon.kill()
        reader = Reader(server.connect(), 5 * BLOCK)
        reader.start()
        client = server.connect()
        client.pwrite(b"w" * BLOCK, 40 << 20)  # whole blocks need no daemon
        assert client.pread(BLOCK, 40 << 20) == b"w" * BLOCK
        client.flush()
        assert reader.is_alive()
        with daemon:
            reader.join(30)
            assert reader.found == base.read_bytes()[5 * BLOCK:6 * BLOCK]
            assert client.pread(BLOCK, 0) == base.read_bytes()[:BLOCK]


def test_after_the_timeout_reads_are_errors_until_it_is_back(folder, base, daemon):
    with Server(folder, **daemon.parameters("disk"), overlay=folder / "overlay", timeout=0) as server:
        client = server.connect()
        client.pwrite(b"w" * BLOCK, BLOCK)
        daemon.kill()
        with pytest.raises(nbd.Error) as caught:
            client.pread(BLOCK, 0)
        assert caught.value.errnum == errno.EIO
        with pytest.raises(nbd.Error) as caught:
            client.pwrite(b"part", 10)  # needs the rest of the block
        assert caught.value.errnum == errno.EIO
        assert client.pread(BLOCK, BLOCK) == b"w" * BLOCK
        with daemon:
            assert read_again(client, 0) == base.read_bytes()[:BLOCK]


def read_again(client, offset, seconds=30):
    """Until it is not an error."""
    end = time.monotonic() + seconds
    while True:
        try:
            return client.pread(BLOCK, offset)
        except nbd.Error:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_another_image_of_that_name_is_never_read(folder, base, daemon):
    other = folder / "other.raw"
    other.write_bytes(random.Random(9).randbytes(DATA) + bytes(DISK - DATA))
    with Server(folder, **daemon.parameters("disk"), overlay=folder / "overlay") as server:
        client = server.connect()
        first = client.pread(BLOCK, 0)
        daemon.kill()
        daemon.replace_image("disk", other)
        with daemon:
            for block in range(1, 20):
                with pytest.raises(nbd.Error) as caught:
                    client.pread(BLOCK, block * BLOCK)
                assert caught.value.errnum == errno.EIO
        assert first == base.read_bytes()[:BLOCK]
    with daemon:
        said = run("nbdkit", "-f", "-U", "-", PLUGIN, "disk", f"socket={daemon.socket}", f"overlay={folder}/overlay", status=1, timeout=20)
        assert "lies over" in said


def test_the_daemon_dies_again_and_again_under_four_clients(folder, base, daemon):
    content, wrong, stop = base.read_bytes(), [], threading.Event()

    def read(seed):
        client, blocks = server.connect(), random.Random(seed)
        while not stop.is_set():
            block = blocks.randrange(DISK // BLOCK)
            if client.pread(BLOCK, block * BLOCK) != content[block * BLOCK:(block + 1) * BLOCK]:
                wrong.append(block)

    with Server(folder, **daemon.parameters("disk")) as server:
        readers = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for reader in readers:
            reader.start()
        for _ in range(effort(50, 4)):
            time.sleep(0.2)
            daemon.kill()
            daemon.start()
        stop.set()
        for reader in readers:
            reader.join(30)
    assert wrong == [] and not any(reader.is_alive() for reader in readers)
