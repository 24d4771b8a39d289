"""What the tests of ramet-store share: a store in a directory, disks made of noise, trees of files and what is to be kept of them."""
import hashlib
import json
import os
import pathlib
import random
import stat
import subprocess

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "bin" / "ramet-store"
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes and files of others, which needs root")
TIME_NS = 1_700_000_001_123_456_789
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


def set_times(root):
    for number, path in enumerate([*root.rglob("*"), root]):
        os.utime(path, ns=(TIME_NS, TIME_NS + number * 1_000_000_007), follow_symlinks=False)


def rows_of(tree):
    """Everything that is to be kept of each file."""
    rows = {}
    for path in [tree, *tree.rglob("*")]:
        s = path.lstat()
        is_directory = stat.S_ISDIR(s.st_mode)
        content = None
        if stat.S_ISREG(s.st_mode) and s.st_size < 100 << 20:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(s.st_mode):
            content = os.readlink(path)
        attributes = {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)}
        rows[os.fsencode(path.relative_to(tree))] = (s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns, 0 if is_directory else s.st_nlink,
                                                     0 if is_directory else s.st_size, s.st_rdev, content, attributes)
    return rows


def expect_same(one, two):
    a, b = rows_of(one), rows_of(two)
    assert sorted(a) == sorted(b)
    assert {name: (a[name], b[name]) for name in a if a[name] != b[name]} == {}


def unpack(tar, into):
    into.mkdir()
    call("tar", "-C", into, "--acls", "--xattrs", "--xattrs-include=*", "-xpf", tar)
    return into
