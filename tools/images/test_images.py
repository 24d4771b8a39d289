"""Archives and kernels as templates/build and machine/ make them."""

import gzip
import lzma
import pathlib
import struct
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from images import cpio, disk, kernel, run  # noqa: E402

ELF = b"\x7fELF" + bytes(range(256)) * 64


def bzimage(payload, setup_sects=4, declared_length=None):
    """The parts of a bzImage the extractor looks at: setup header, then the payload at offset 16 of the protected-mode part."""
    image = bytearray((setup_sects + 1) * 512)
    image[0x1F1] = setup_sects
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", image, 0x248, 16, declared_length or len(payload))
    return bytes(image) + b"\xcc" * 16 + payload + b"\xee" * 64


def sized(compressed):
    return compressed + struct.pack("<I", len(ELF))


def compress(argv):
    return subprocess.run(argv, input=ELF, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("payload", [
    pytest.param(sized(ELF), id="plain"),
    pytest.param(gzip.compress(ELF), id="gzip"),
    pytest.param(sized(lzma.compress(ELF)), id="xz"),
    pytest.param(sized(compress(["zstd", "-qc"])), id="zstd"),
    pytest.param(sized(compress(["lz4", "-lqc"])), id="lz4"),
])
def test_takes_the_kernel_out_of_a_bzimage(payload):
    assert kernel.vmlinux_from_bzimage(bzimage(payload)) == ELF


@pytest.mark.parametrize("image, says", [
    pytest.param(b"", "no HdrS", id="empty"),
    pytest.param(b"\0" * 4096, "no HdrS", id="zeros"),
    pytest.param(bzimage(sized(ELF))[:3000], "truncated", id="truncated"),
    pytest.param(bzimage(sized(ELF), declared_length=1 << 31), "truncated", id="length beyond the file"),
    pytest.param(bzimage(b"unknown compression"), "unknown way", id="unknown magic"),
    pytest.param(bzimage(ELF + b"\0\0\0\0"), "no ELF kernel of 0 bytes", id="wrong size"),
])
def test_refuses_a_broken_bzimage_with_a_reason(image, says):
    with pytest.raises(run.BuildError, match=says):
        kernel.vmlinux_from_bzimage(image)


def test_cpio_reads_back_with_devices_links_and_modes(tmp_path):
    archive = cpio.Archive()
    archive.character_device("dev/console", 5, 1)
    archive.file("sbin/init", b"#!/bin/sh\n", 0o755)
    archive.link("bin/sh", "busybox")
    listing = subprocess.run(["cpio", "-tvn"], input=archive.bytes(), stdout=subprocess.PIPE, check=True).stdout.decode()
    lines = [line.split() for line in listing.splitlines()]
    assert [line[0] for line in lines] == ["drwxr-xr-x", "crw-------", "drwxr-xr-x", "-rwxr-xr-x", "drwxr-xr-x", "lrwxrwxrwx"]
    assert lines[5][-3:] == ["bin/sh", "->", "busybox"]
    assert {line[2] for line in lines} == {"0"}


def test_cpio_is_the_same_each_time():
    def make():
        archive = cpio.Archive()
        archive.file("a/b/c", b"x")
        return archive.compressed()
    assert make() == make()


def test_cpio_refuses_the_same_path_twice():
    archive = cpio.Archive()
    archive.file("a", b"")
    with pytest.raises(ValueError):
        archive.file("a", b"")


def test_ext4_image_is_clean_and_the_same_each_time(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_text("content")
    disk.ext4_image(tmp_path / "one.img", 64 << 20, "label", tree)
    disk.ext4_image(tmp_path / "two.img", 64 << 20, "label", tree)
    check = subprocess.run(["/usr/sbin/e2fsck", "-fn", tmp_path / "one.img"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert check.returncode == 0
    assert (tmp_path / "one.img").stat().st_blocks * 512 < 8 << 20
    superblock = slice(1024, 2048)
    assert (tmp_path / "one.img").read_bytes()[superblock] == (tmp_path / "two.img").read_bytes()[superblock]
