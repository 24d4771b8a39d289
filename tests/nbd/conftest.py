"""Tests of disks over NBD with the clients that people use. Needs the release build and the packages of tools/bootstrap."""

import pathlib
import random
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from server import PLUGIN, Server  # noqa: E402

BASE_BYTES = 64 << 20


def pytest_collection_modifyitems(items):
    missing = [name for name in ("nbdkit", "nbdcopy", "qemu-img", "fio") if shutil.which(name) is None]
    missing += [str(PLUGIN)] * (not PLUGIN.exists())
    if missing:
        for item in items:
            if pathlib.Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=f"not there: {' '.join(missing)}"))


@pytest.fixture
def folder():
    """Short, because sockets lie in it."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="ramet-nbd-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """A raw disk: noise, a hole, noise that does not begin with a block, a hole to the end."""
    path = tmp_path_factory.mktemp("base") / "base.raw"
    noise = random.Random(1)
    with open(path, "wb") as out:
        out.write(noise.randbytes(3 << 20))
        out.seek((20 << 20) + 700)
        out.write(noise.randbytes(1_000_000))
        out.truncate(BASE_BYTES)
    return path


@pytest.fixture
def read_only(folder, base):
    with Server(folder, file=base) as server:
        yield server


@pytest.fixture
def writable(folder, base):
    with Server(folder, file=base, overlay=folder / "overlay") as server:
        yield server
