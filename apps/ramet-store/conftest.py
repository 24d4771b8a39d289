"""What the tests of ramet-store share: a store in a directory, disks made of noise, the beginning of a tree of files."""
import json
import os
import pathlib
import random
import subprocess

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bin" / "ramet-store"
ENVIRONMENT = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}


def call(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120, env=ENVIRONMENT, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Store:
    def __init__(self, directory):
        self.directory = directory

    def command(self, *words):
        return [str(PROGRAM), "--store", str(self.directory), *map(str, words)]

    def run(self, *words, status=0):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=120)
        assert (done.returncode == 0) == (status == 0), done.stdout + done.stderr
        return done

    def json(self, *words):
        return json.loads(self.run("--json", *words).stdout)

    def packs(self):
        return sorted(self.directory.glob("packs/*.pack"))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def make_image(path, seed, mib=40):
    noise = random.Random(seed)
    with open(path, "wb") as out:
        out.write(noise.randbytes(3 << 20))
        out.seek(20 << 20)
        out.write(noise.randbytes(100_000))
        out.truncate(mib << 20)
    return path


def make_files(root):
    """A small file and a large one with a second name, links of which one is long."""
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "hostname").write_text("sandbox\n")
    (root / "bin").mkdir()
    (root / "bin" / "tool").write_bytes(random.Random(1).randbytes(3_000_000))
    (root / "bin" / "tool").chmod(0o4755)
    os.link(root / "bin" / "tool", root / "bin" / "same")
    (root / "sh").symlink_to("bin/tool")
    (root / "far").symlink_to("/" + "x" * 200)
