"""What the tests of ramet-store share: a store in a directory, and disks made of noise."""
import json
import pathlib
import random
import subprocess

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bin" / "ramet-store"


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
