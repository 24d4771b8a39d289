"""Single requests through libnbd: against a model, from four connections at once, and wrong ones."""

import errno
import random
import socket
import struct

import nbd
import pytest

from server import Server, effort

BLOCK = 4096
DISK = 64 << 20
AREA = 2 << 20  # the model test works here, so that requests meet


class Model:
    """The first bytes of the disk, as they must be."""

    def __init__(self, client, seed):
        self.random = random.Random(seed)
        self.bytes = bytearray(client.pread(AREA, 0))

    def range(self):
        grain = self.random.choice((1, 512, 4096))
        offset = self.random.randrange(AREA // grain) * grain
        return offset, min(self.random.randint(1, 40_000 // grain + 1) * grain, AREA - offset)

    def step(self, client):
        offset, length = self.range()
        fua = nbd.CMD_FLAG_FUA if self.random.random() < 0.05 else 0
        action = self.random.choice(("write", "write", "write", "read", "read", "zero", "trim", "flush", "extents"))
        getattr(self, action)(client, offset, length, fua)

    def write(self, client, offset, length, fua):
        data = self.random.randbytes(length)
        client.pwrite(data, offset, fua)
        self.bytes[offset:offset + length] = data

    def read(self, client, offset, length, _):
        assert client.pread(length, offset) == self.bytes[offset:offset + length], f"{offset}+{length}"

    def zero(self, client, offset, length, fua):
        how = self.random.choice((0, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FAST_ZERO))
        client.zero(length, offset, how | fua)
        self.bytes[offset:offset + length] = bytes(length)

    def trim(self, client, offset, length, fua):
        client.trim(length, offset, fua)
        first, end = -(-offset // BLOCK) * BLOCK, (offset + length) // BLOCK * BLOCK
        if first < end:
            self.bytes[first:end] = bytes(end - first)

    def flush(self, client, *_):
        client.flush()

    def extents(self, client, offset, length, _):
        def look(_, at, entries, error):
            for size, kind in zip(entries[::2], entries[1::2]):
                inside = self.bytes[at:min(at + size, AREA)]
                assert kind in (0, 3) and (kind == 0 or not any(inside)), f"{at}+{size}"
                at += size
            return error.value
        client.block_status(length, offset, look)


def test_random_requests_agree_with_a_model_also_after_restarts(folder, source):
    server = Server(folder, **source, overlay=folder / "overlay")
    with server:
        model = Model(server.connect(), seed=effort(random.randrange(1 << 30), 11))
    for _ in range(effort(20, 3)):
        with server:
            client = server.connect()
            model.read(client, 0, AREA, 0)
            for _ in range(effort(5000, 500)):
                model.step(client)
    with server:
        model.read(server.connect(), 0, AREA, 0)


def test_a_flush_on_one_connection_covers_the_writes_of_another(folder, source):
    server = Server(folder, **source, overlay=folder / "overlay").start()
    a, b = server.connect(), server.connect()
    a.pwrite(b"x" * BLOCK, 30 << 20)
    b.flush()
    server.kill()
    with server:
        assert server.connect().pread(BLOCK, 30 << 20) == b"x" * BLOCK


def error_of(call, *arguments):
    with pytest.raises(nbd.Error) as caught:
        call(*arguments)
    return errno.errorcode[caught.value.errnum]


def test_wrong_requests_are_errors_and_the_connection_goes_on(writable):
    client = writable.connect(strict=False)
    assert error_of(client.pread, 512, DISK - 511) == "EINVAL"
    assert error_of(client.pread, 512, 1 << 62) == "EINVAL"
    assert error_of(client.pwrite, b"x" * 512, DISK) in ("EINVAL", "ENOSPC")
    assert error_of(client.trim, 4096, DISK - 1) == "EINVAL"
    assert error_of(client.zero, 0xFFFF_FFFF, 4096) in ("EINVAL", "ENOSPC")
    assert error_of(client.block_status, 4096, DISK, lambda *_: 0) == "EINVAL"
    assert error_of(client.cache, 4096, DISK) == "EINVAL"
    assert client.pread(16, 0) and writable.is_alive()


def test_fast_zero_without_a_hole_is_refused_and_changes_nothing(writable):
    client = writable.connect()
    before = client.pread(8192, 0)
    assert error_of(client.zero, 8192, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE) == "ENOTSUP"
    assert client.pread(8192, 0) == before


def test_a_read_only_disk_refuses_every_change(read_only):
    client = read_only.connect(strict=False)
    for call, arguments in ((client.pwrite, (b"x", 0)), (client.zero, (1, 0)), (client.trim, (4096, 0))):
        assert error_of(call, *arguments) in ("EPERM", "EINVAL")
    assert client.pread(16, 0)


def test_oversize_requests_and_noise_end_their_connection_only(writable):
    with pytest.raises(nbd.Error):
        writable.connect(strict=False).pread((64 << 20) + 1, 0)
    noise = random.Random(2)
    for _ in range(effort(2000, 40)):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(writable.socket))
            flags = struct.pack(">I", noise.choice((1, 3, noise.randrange(1 << 32))))
            option = b"IHAVEOPT" + struct.pack(">II", noise.randrange(12), noise.choice((0, 8, 1 << 20, 0xFFFF_FFFF)))
            try:
                raw.sendall(flags + option + noise.randbytes(noise.randrange(200)))
                raw.shutdown(socket.SHUT_WR)
                raw.settimeout(5)
                while raw.recv(4096):
                    pass
            except (ConnectionError, BrokenPipeError):
                pass
    assert writable.connect().pread(16, 0) and writable.is_alive()


def test_requests_after_the_handshake_may_be_noise(writable):
    """A request with a wrong magic or an unknown command ends or fails; the next client is served."""
    for magic, command in ((0x25609513, 77), (0xDEADBEEF, 0), (0x25609513, 1)):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(writable.socket))
            raw.recv(18)
            raw.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 0))
            raw.recv(10)
            raw.sendall(struct.pack(">IHHQQI", magic, 0xFFFF, command, 1, DISK, 0xFFFF_FFFF))
            raw.settimeout(5)
            raw.recv(16)
    assert writable.connect().pread(16, 0) and writable.is_alive()
