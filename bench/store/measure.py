"""What one command costs, and how large a folder is."""

import dataclasses
import os
import pathlib
import subprocess

from images.run import BuildError


@dataclasses.dataclass(frozen=True)
class Cost:
    cpu_s: float  # user and system, of the program and all children that it waited for
    peak_bytes: int  # resident, of the largest of them


def run(argv, cwd, env=None):
    """Runs to the end. Errors: BuildError with the end of its words."""
    with open(pathlib.Path(cwd) / "said", "w+b") as said:
        process = subprocess.Popen([str(a) for a in argv], cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                                   stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            said.seek(0)
            tail = said.read().decode(errors="replace").splitlines()[-8:]
            raise BuildError("\n  ".join([f"{' '.join(map(str, argv))} ended with status {process.returncode}", *tail]))
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


@dataclasses.dataclass(frozen=True)
class Size:
    apparent: int
    allocated: int


def size_of(folder):
    apparent = allocated = 0
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file() and not path.is_symlink():
            apparent += path.stat().st_size
            allocated += path.stat().st_blocks * 512
    return Size(apparent, allocated)


def into_page_cache(path):
    """So that nobody pays for being the first to read it."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    for file in files:
        with open(file, "rb", buffering=0) as one:
            while one.read(1 << 22):
                pass


def require_equal(a, b):
    """Byte for byte."""
    done = subprocess.run(["cmp", a, b], capture_output=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"what came back is not what was put: {(done.stdout + done.stderr).decode().strip()}")
