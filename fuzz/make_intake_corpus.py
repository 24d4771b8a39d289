#!/usr/bin/python3
"""Writes the samples of foreign images below fuzz/corpus: good ones, and hostile ones under the names that tests know them by."""
import gzip
import io
import json
import lzma
import os
import pathlib
import struct
import subprocess
import tarfile
import tempfile

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def member(name, kind=tarfile.REGTYPE, link="", data=b"", size=None, pax=None):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mtime = kind, link, len(data) if size is None else size, 1_700_000_000
    info.pax_headers = pax or {}
    return info, data


def tar(*members, form=tarfile.PAX_FORMAT):
    out = b"".join(info.tobuf(form, "utf-8", "surrogateescape") + data + bytes(-len(data) % 512) for info, data in members)
    return out + bytes(1024)


def archive(name, data, whiteouts=False):
    """The first byte is the fuzz target's: how whiteouts are taken."""
    (CORPUS / "archive_fuzz").mkdir(parents=True, exist_ok=True)
    (CORPUS / "archive_fuzz" / name).write_bytes(bytes([whiteouts]) + data)


def text(name, data, which):
    (CORPUS / "oci_json_fuzz").mkdir(parents=True, exist_ok=True)
    (CORPUS / "oci_json_fuzz" / name).write_bytes(bytes([which]) + (data if isinstance(data, bytes) else json.dumps(data).encode()))


def header(name, version=3, backing=0, backing_size=0, size=1 << 30, crypt=0, features=0, cut=None):
    (CORPUS / "image_header_fuzz").mkdir(parents=True, exist_ok=True)
    data = struct.pack(">4sIQIIQIIQQIIQQQQII", b"QFI\xfb", version, backing, backing_size, 16, size, crypt, 1, 0x30000, 0x10000,
                       1, 0, 0, features, 0, 0, 4, 104)
    (CORPUS / "image_header_fuzz" / name).write_bytes(b"\0" + data[:cut])


def disk(name, kind, *options, bend=None):
    """A small ext file system with one of everything, by mke2fs; the same each time."""
    uuid = "11111111-2222-4333-8444-555555555555"
    path = CORPUS / "ext4_fuzz" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        (root / "dir").mkdir()
        (root / "file").write_text("hello")
        (root / "link").symlink_to("file")
        os.link(root / "file", root / "dir" / "hard")
        os.mkfifo(root / "fifo")
        os.setxattr(root / "file", "user.k", b"v")
        for each in [*root.rglob("*"), root]:
            os.utime(each, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
        path.write_bytes(bytes(64 << 10))
        subprocess.run(["/sbin/mke2fs", "-q", "-F", "-t", kind, "-b", "1024", "-N", "16", "-U", uuid, "-E", f"hash_seed={uuid}",
                        *options, "-d", root, path], check=True, env={"E2FSPROGS_FAKE_TIME": "1700000000"})
    if bend:
        subprocess.run(["/sbin/debugfs", "-w", "-R", bend, path], check=True, stderr=subprocess.DEVNULL)


def disks():
    plain = ("-I", "256", "-O", "^has_journal,^metadata_csum,^resize_inode,^dir_index")
    disk("ext4", "ext4", *plain)
    disk("ext2", "ext2", "-I", "128")
    disk("inline", "ext4", "-I", "256", "-O", "inline_data,^has_journal,^resize_inode")
    disk("directory-in-itself", "ext4", *plain, bend="ln dir dir/again")


def archives():
    good = tar(member("a/", tarfile.DIRTYPE), member("a/file", data=b"hello"), member("a/link", tarfile.SYMTYPE, "file"),
               member("a/hard", tarfile.LNKTYPE, "a/file"), member("täglich", data=b"x", pax={"SCHILY.xattr.user.k": "v"}))
    archive("good", good)
    archive("good-gzip", gzip.compress(good, mtime=0))
    archive("good-xz", lzma.compress(good))
    archive("good-gnu", tar(member("n" * 200, data=b"long"), form=tarfile.GNU_FORMAT))
    archive("good-layer", tar(member("a/.wh.gone"), member("b/.wh..wh..opq"), member("b/new", data=b"1")), whiteouts=True)
    archive("dot-dot", tar(member("a/../../etc/passwd", data=b"x")))
    archive("absolute", tar(member("/etc/passwd", data=b"x")))
    archive("through-symlink", tar(member("etc", tarfile.SYMTYPE, "/etc"), member("etc/passwd", data=b"x")))
    archive("through-symlink-up", tar(member("up", tarfile.SYMTYPE, "../.."), member("up/passwd", data=b"x")))
    archive("through-file", tar(member("f", data=b"x"), member("f/g", data=b"x")))
    archive("hard-link-outside", tar(member("l", tarfile.LNKTYPE, "../../etc/shadow")))
    archive("hard-link-absolute", tar(member("l", tarfile.LNKTYPE, "/etc/shadow")))
    archive("hard-link-to-nothing", tar(member("l", tarfile.LNKTYPE, "etc/shadow")))
    archive("hard-link-to-directory", tar(member("d", tarfile.DIRTYPE), member("l", tarfile.LNKTYPE, "d")))
    archive("hard-link-through-symlink", tar(member("e", tarfile.SYMTYPE, "/etc"), member("l", tarfile.LNKTYPE, "e/shadow")))
    archive("block-device", tar(member("dev/sda", tarfile.BLKTYPE)))
    archive("character-device", tar(member("dev/mem", tarfile.CHRTYPE)))
    archive("fifo", tar(member("pipe", tarfile.FIFOTYPE)))
    archive("giant-size", tar(member("huge", size=1 << 50), form=tarfile.GNU_FORMAT))
    archive("giant-size-pax", tar(member("huge", pax={"size": str(1 << 60)})))
    archive("sparse-giant", tar(member("huge", pax={"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "huge",
                                                  "GNU.sparse.realsize": str(1 << 60)}, data=b"0\n" + bytes(510))))
    archive("bomb-gzip", gzip.compress(tar(member("zeros", data=bytes(8 << 20))), mtime=0))
    archive("bomb-passed-over", gzip.compress(tar(member(".wh.x", data=bytes(8 << 20)), member("g")), mtime=0), whiteouts=True)
    archive("bomb-of-files", gzip.compress(tar(*(member(f"f{i}") for i in range(3000))), mtime=0))
    archive("bomb-of-directories", tar(member("a/" * 300 + "x")))
    archive("bomb-of-links", gzip.compress(tar(member("f"), *(member(f"l{i}", tarfile.LNKTYPE, "f") for i in range(3000))), mtime=0))
    archive("name-too-long", tar(member("n" * 300, data=b"x")))
    archive("xattrs-too-many", gzip.compress(tar(member("f", pax={f"SCHILY.xattr.user.{i}": "v" * 400 for i in range(200)})), mtime=0))
    archive("owner-negative", tar(member("f", pax={"uid": "-1"})))
    archive("empty-link", tar(member("l", tarfile.SYMTYPE, "")))
    archive("file-over-root", tar(member(".", data=b"")))
    archive("cut", good[:700])
    archive("no-tar", b"#!/bin/sh\nexit 0\n" * 100)
    archive("whiteout-of-nothing", tar(member("a/.wh.")), whiteouts=True)
    archive("whiteout-outside", tar(member("../.wh.x")), whiteouts=True)


def documents():
    digest = "sha256:" + "ab" * 32
    image = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 100,
             "annotations": {"org.opencontainers.image.ref.name": "latest"}, "platform": {"os": "linux", "architecture": "amd64"}}
    layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest, "size": 5}
    text("index", {"schemaVersion": 2, "manifests": [image, {**image, "platform": {"os": "linux", "architecture": "arm64"}}]}, 0)
    text("manifest", {"schemaVersion": 2, "layers": [layer, layer]}, 1)
    text("digest-is-a-path", {"manifests": [{**image, "digest": "sha256:../../../etc/passwd"}]}, 0)
    text("digest-of-another-kind", {"manifests": [{**image, "digest": "md5:" + "ab" * 16}]}, 0)
    text("size-negative", {"manifests": [{**image, "size": -1}]}, 0)
    text("size-not-whole", {"layers": [{**layer, "size": 1e30}]}, 1)
    text("layer-elsewhere", {"layers": [{**layer, "mediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"}]}, 1)
    text("too-many", {"layers": [0] * 1025}, 1)
    text("too-deep", b"[" * 10000, 0)
    text("list-is-none", {"manifests": {"0": image}}, 0)
    text("entry-is-none", {"manifests": ["x"]}, 0)


def headers():
    header("version-3")
    header("version-2", version=2)
    header("backing-file", backing=0x200, backing_size=11)
    header("encrypted", crypt=2)
    header("data-file", features=4)
    header("marked-corrupt", features=2)
    header("unknown-feature", features=1 << 40)
    header("later-version", version=4)
    header("giant", size=1 << 63)
    header("empty", size=0)
    header("cut", cut=80)
    (CORPUS / "image_header_fuzz" / "other-magic").write_bytes(b"\0" + b"VMDK" + bytes(120))


if __name__ == "__main__":
    archives()
    documents()
    headers()
    disks()
