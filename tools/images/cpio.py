"""initramfs archives ("newc" cpio, Documentation/driver-api/early-userspace/buffer-format.rst).

Written by hand so that they need no root (device nodes) and come out byte for byte the same each time.
"""

import os
import stat

from .run import check_output


class Archive:
    """Owner root, time 0; folders are made as needed."""

    def __init__(self):
        self._parts = []
        self._seen = set()
        self._inode = 0

    def folder(self, path, mode=0o755):
        if path and path not in self._seen:
            self._parent(path)
            self._entry(path, stat.S_IFDIR | mode)

    def file(self, path, data, mode=0o644):
        self._parent(path)
        self._entry(path, stat.S_IFREG | mode, data)

    def link(self, path, target):
        self._parent(path)
        self._entry(path, stat.S_IFLNK | 0o777, os.fsencode(target))

    def character_device(self, path, major, minor, mode=0o600):
        self._parent(path)
        self._entry(path, stat.S_IFCHR | mode, device=(major, minor))

    def copy(self, source, path=None, mode=None):
        """A file of this machine, following links; at the same path unless `path` says otherwise."""
        with open(source, "rb") as file:
            data = file.read()
            found = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        self.file((path or str(source)).lstrip("/"), data, mode or found)

    def has(self, path):
        return path.lstrip("/") in self._seen

    def bytes(self):
        ending = self._header("TRAILER!!!", 0, 0, (0, 0)) + _padded(b"TRAILER!!!\0", 110)
        return b"".join([*self._parts, ending])

    def compressed(self, level=9):
        return check_output(["zstd", "-q", "-c", f"-{level}"], input=self.bytes())

    def _parent(self, path):
        folder = os.path.dirname(path)
        if folder:
            self.folder(folder)

    def _entry(self, path, mode, data=b"", device=(0, 0)):
        if path in self._seen:
            raise ValueError(f"{path} is in the archive twice")
        self._seen.add(path)
        self._inode += 1
        name = os.fsencode(path) + b"\0"
        self._parts.append(self._header(path, mode, len(data), device) + _padded(name, 110) + _padded(data, 0))

    def _header(self, path, mode, size, device):
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = [self._inode, mode, 0, 0, links, 0, size, 0, 0, *device, len(os.fsencode(path)) + 1, 0]
        return b"070701" + b"".join(b"%08X" % field for field in fields)


def _padded(data, offset):
    return data + b"\0" * (-(offset + len(data)) % 4)
