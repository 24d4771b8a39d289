"""Tests of disks over NBD with the clients that people use. Needs the release build and the packages of tools/bootstrap."""

import pathlib
import random
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon import Daemon  # noqa: E402
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


@pytest.fixture(scope="session")
def lasting_daemon(base):
    """For the tests that leave it alone."""
    with tempfile.TemporaryDirectory(prefix="ramet-nbd-") as path, Daemon(pathlib.Path(path), {"disk": base}) as daemon:
        yield daemon


@pytest.fixture(params=["file", "image"])
def source(request, base):
    """Parameters of the plugin: the base as a file, and as an image of a daemon."""
    return {"file": base} if request.param == "file" else request.getfixturevalue("lasting_daemon").parameters("disk")


@pytest.fixture
def read_only(folder, source):
    with Server(folder, **source) as server:
        yield server


@pytest.fixture
def writable(folder, source):
    with Server(folder, **source, overlay=folder / "overlay") as server:
        yield server
