"""Edited versions of one image, each made from the one before with debugfs, so the file system lays out what it writes itself."""

import random
import tempfile
import pathlib

from images import disk, run

from . import inputs

WORDS = "the of store block page frame chunk disk memory guest is are was read write next first last one many".split()


def make(folder, plan):
    before = inputs.root_path(folder, plan.edited)
    for number, name in enumerate(plan.edits):
        image = inputs.edited_path(folder, name)
        if not image.exists():
            part = image.with_suffix(".part")
            disk.copy_sparse(before, part)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                EDITS[name](Editor(part, pathlib.Path(scratch), random.Random(number)))
            part.rename(image)
        before = image


class Editor:
    """Writes files into an ext4 image that nobody has mounted."""

    def __init__(self, image, scratch, rng):
        self.image, self.scratch, self.rng = image, scratch, rng

    def files(self, folder, ending):
        """Paths of regular files in the image's folder, in order."""
        rows = self._debugfs("ls", "-p", folder).decode().splitlines()
        found = [row.split("/") for row in rows if row.count("/") >= 6]
        return sorted(f"{folder}/{f[5]}" for f in found if f[2].startswith("100") and f[5].endswith(ending))

    def read(self, path):
        out = self.scratch / "read"
        self._debugfs("dump", path, out)
        return out.read_bytes()

    def write(self, files):
        """Each path gets new content (None: is deleted)."""
        commands = []
        for number, (path, data) in enumerate(files.items()):
            commands.append(f"rm {path}")
            if data is not None:
                (self.scratch / str(number)).write_bytes(data)
                commands.append(f"write {self.scratch / str(number)} {path}")
        script = self.scratch / "script"
        script.write_text("\n".join(commands) + "\n", encoding="utf-8")
        run.check_output(["debugfs", "-w", "-f", script, self.image])
        if data is not None and self.read(path) != data:  # debugfs ends with 0 whatever happened
            raise run.BuildError(f"debugfs did not write {path} into {self.image}")

    def text(self, size):
        words = self.rng.choices(WORDS, k=size // 4)
        words[::7] = [f"{self.rng.getrandbits(40):x}\n" for _ in words[::7]]
        return " ".join(words).encode()[:size]

    def _debugfs(self, *request):
        return run.check_output(["debugfs", "-R", " ".join(str(word) for word in request), self.image])


def _python_files(editor):
    return editor.files("/usr/lib/python3.11", ".py")


def _edit(editor):
    changed = {}
    for path in editor.rng.sample(_python_files(editor), 3):
        data = bytearray(editor.read(path))
        data[len(data) // 2:len(data) // 2 + 32] = editor.rng.randbytes(32)
        changed[path] = bytes(data)
    editor.write(changed)


def _new(editor):
    editor.write({f"/srv/new-{n}": editor.text(100_000) for n in range(20)})


def _rewrite(editor):
    """A line more near the end of each of 40 files."""
    changed = {}
    for path in editor.rng.sample(_python_files(editor), 40):
        lines = editor.read(path).splitlines(keepends=True)
        lines.insert(len(lines) * 2 // 3, b"# one line more\n")
        changed[path] = b"".join(lines)
    editor.write(changed)


def _random(editor):
    editor.write({"/srv/random": editor.rng.randbytes(6 << 20), **{f"/srv/small-{n}": editor.text(700) for n in range(100)}})


def _delete(editor):
    editor.write({**dict.fromkeys(editor.rng.sample(_python_files(editor), 20)), "/var/log/bench.log": editor.text(1 << 20)})


EDITS = {"edit": _edit, "new": _new, "rewrite": _rewrite, "random": _random, "delete": _delete}
