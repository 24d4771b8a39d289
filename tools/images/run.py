"""Running programs for a build: progress lines, errors that say what to do, one cache shared by concurrent builds."""

import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]


class BuildError(Exception):
    """One sentence for the user, with what to do next. The program ends with status 1."""


class Steps:
    """Prints `step K/N: text` on stderr; the command line shows these lines to the user."""

    def __init__(self, total):
        self.total = total
        self.done = 0

    def __call__(self, text):
        self.done += 1
        print(f"step {self.done}/{self.total}: {text}", file=sys.stderr, flush=True)


def check_output(argv, hint="", **kwargs):
    """Runs argv and returns its stdout as bytes. Errors: BuildError with the end of its stderr."""
    environment = dict(kwargs.pop("env", os.environ))
    environment["PATH"] = environment.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"  # where mke2fs is; users lack it
    try:
        done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **kwargs)
    except FileNotFoundError:
        raise BuildError(f"{argv[0]} is not installed: run tools/bootstrap") from None
    if done.returncode != 0:
        tail = done.stderr.decode(errors="replace").strip().splitlines()[-12:]
        message = f"{argv[0]} failed with status {done.returncode}"
        if hint:
            message += f" ({hint})"
        raise BuildError("\n  ".join([message, *tail]))
    return done.stdout


def cache_dir():
    """Where downloads and half products live: $RAMET_CACHE, else out/cache in the source tree, else the user's cache."""
    wanted = os.environ.get("RAMET_CACHE")
    if wanted:
        path = pathlib.Path(wanted)
    elif os.access(SOURCE, os.W_OK):
        path = SOURCE / "out" / "cache"
    else:
        path = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "ramet"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def locked(path):
    """Holds an exclusive lock on path + '.lock': two builds at once share the cache, the second waits."""
    with open(f"{path}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find_program(name):
    """One of our own programs: $RAMET_BIN, else the release build of this source tree, else beside the installed tools."""
    folders = [os.environ.get("RAMET_BIN"), SOURCE / "build/release/bin", SOURCE, "/usr/bin"]
    for folder in folders:
        if folder and os.access(pathlib.Path(folder) / name, os.X_OK):
            return pathlib.Path(folder) / name
    raise BuildError(f"{name} is not built: run `make build` in {SOURCE}")
