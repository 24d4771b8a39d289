"""ramet-store and its peers behind one face: a fresh store in a folder, put an image into it, get it back as a new file.

Each is called in the way that suits it best here: no encryption where it can be left out, SHA-256 where there is a choice (the
processor has instructions for it), holes instead of zeros where the tool can.
"""

import json
import subprocess

from . import measure

PACKAGES = {"borg": "borgbackup", "restic": "restic", "casync": "casync"}


class Tool:
    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.store = folder / "store"  # all that counts as stored
        self.folder.mkdir(parents=True)
        self.create()

    def create(self):
        self.store.mkdir()

    def run(self, *argv, cwd=None):
        return measure.run(argv, cwd or self.folder, self.environment())

    def environment(self):
        return {}

    def output(self):
        """A folder to get into, made anew."""
        out = self.folder / "out"
        subprocess.run(["rm", "-rf", out], check=True)
        out.mkdir()
        return out


class Ramet(Tool):
    def __init__(self, program, folder, parents=True):
        self.program, self.parents = program, parents
        super().__init__("ramet-store", folder)

    def put(self, one, parent_known):
        parent = ["--parent", one.parent] if one.parent and parent_known else []
        return self._call("--quiet", "import", *self._kind(one), one.path, one.name, *parent)

    def get(self, one):
        target = self.output() / one.name
        return self._call("--quiet", "export", one.name, target), target

    def literal_bytes(self):
        done = subprocess.run([self.program, "--store", self.store, "--json", "stats"], stdout=subprocess.PIPE, check=True)
        said = json.loads(done.stdout)
        return said["unique_bytes"] + said["shared_bytes"] + said["dead_bytes"]

    def _kind(self, one):
        return []

    def _call(self, *words):
        return self.run(self.program, "--store", self.store, *words)


class Borg(Tool):
    def __init__(self, compression, folder):
        self.compression = compression
        super().__init__(f"borg {compression}", folder)

    def create(self):
        self.run("borg", "init", "--encryption", "none", self.store)

    def environment(self):
        return {"BORG_BASE_DIR": str(self.folder / "own"), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
                "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes"}

    def put(self, one, parent_known):
        return measure.run(["borg", "create", "--compression", self.compression, "--files-cache", "disabled",
                            f"{self.store}::{one.name}", one.path.name], self._near(one), self.environment())

    def get(self, one):
        out = self.output()
        return self.run("borg", "extract", "--sparse", f"{self.store}::{one.name}", cwd=out), out / one.path.name

    def _near(self, one):
        # Names in an archive are those of the command line; a link, so that nothing is written beside the inputs.
        near = self.folder / "near"
        near.mkdir(exist_ok=True)
        link = near / one.path.name
        if not link.exists():
            link.hardlink_to(one.path)
        return near


class Restic(Tool):
    def __init__(self, folder):
        super().__init__("restic auto", folder)

    def create(self):
        self.run("restic", "-q", "init", "--repository-version", "2", "-r", self.store)

    def environment(self):
        return {"RESTIC_PASSWORD": "bench", "RESTIC_CACHE_DIR": str(self.folder / "own")}

    def put(self, one, parent_known):
        return self.run("restic", "-q", "-r", self.store, "backup", "--compression", "auto", "--tag", one.name, one.path)

    def get(self, one):
        out = self.output()
        cost = self.run("restic", "-q", "-r", self.store, "restore", "latest", "--tag", one.name, "--target", out)
        return cost, next(out.rglob(one.path.name))


class Casync(Tool):
    def __init__(self, chunk_kib, folder):
        self.options = ["--chunk-size", str(chunk_kib << 10), "--digest=sha256", "--compression=zstd"]
        super().__init__(f"casync {chunk_kib}K", folder)

    def put(self, one, parent_known):
        return self._call("make", self._index(one), one.path)

    def get(self, one):
        target = self.output() / one.name
        return self._call("extract", self._index(one), target), target

    def _index(self, one):
        return self.store / f"{one.name}.caibx"

    def _call(self, verb, *words):
        return self.run("casync", verb, f"--store={self.store / 'chunks.castr'}", *self.options, *words)


def makers(program):
    """Name of each tool, and what makes it in a folder."""
    return {
        "ramet-store": lambda folder: Ramet(program, folder),
        "borg zstd,1": lambda folder: Borg("zstd,1", folder),
        "borg lz4": lambda folder: Borg("lz4", folder),
        "restic auto": Restic,
        "casync 64K": lambda folder: Casync(64, folder),
        "casync 16K": lambda folder: Casync(16, folder),
    }
