"""A file system made, filled, checked and read again through nbdfuse."""

import os
import subprocess

import pytest

from server import Server, run, wait_until


class Mounted:
    def __init__(self, folder, server):
        self.file = folder / "disk"
        self.file.touch()
        self.process = subprocess.Popen(["nbdfuse", "-C", "4", self.file, server.uri])

    def __enter__(self):
        wait_until(lambda: self.process.poll() is not None or self.file.stat().st_size > 0, "nbdfuse shows the disk")
        assert self.process.poll() is None
        return self.file

    def __exit__(self, *_):
        run("fusermount3", "-u", self.file)
        self.process.wait(30)


@pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="/dev/fuse cannot be opened")
def test_a_file_system_lives_on_the_disk(folder, source):
    server = Server(folder, **source, overlay=folder / "overlay")
    (folder / "note").write_text("a note\n")
    (folder / "large").write_bytes(os.urandom(5 << 20))
    with server, Mounted(folder, server) as disk:
        run("mkfs.ext4", "-q", "-F", "-E", "discard", disk)
        run("debugfs", "-w", "-R", f"write {folder}/note note", disk)
        run("debugfs", "-w", "-R", f"write {folder}/large large", disk)
        run("e2fsck", "-f", "-n", disk)
    with server, Mounted(folder, server) as disk:
        run("e2fsck", "-f", "-n", disk)
        run("debugfs", "-R", f"dump large {folder}/again", disk)
        assert "a note" in run("debugfs", "-R", "cat note", disk)
    assert (folder / "again").read_bytes() == (folder / "large").read_bytes()
