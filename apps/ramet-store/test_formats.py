"""Images of every format through ramet-store, beside the programs that people have: qemu-img, tar, umoci, debugfs, e2fsck."""
import gzip
import hashlib
import json
import os
import pathlib
import stat
import subprocess
import tarfile

import pytest
from stores import call, make_files, make_image

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "fuzz" / "corpus" / "archive_fuzz"


@pytest.fixture
def tree(tmp_path):
    """A root file system with one of everything that is taken."""
    root = tmp_path / "root"
    make_files(root)
    with open(root / "sparse", "wb") as out:
        out.seek(5 << 20)
        out.write(b"end")
    (root / "naïve name").write_text("utf-8")
    (root / "empty").touch()
    os.setxattr(root / "etc" / "hostname", "user.origin", b"test")
    for path in [root, *root.rglob("*")]:
        os.utime(path, (1_700_000_001, 1_700_000_001), follow_symlinks=False)
    return root


def rows_of(tree):
    rows = {}
    for path in sorted(tree.rglob("*")):
        if path.name == "lost+found":
            continue
        mode, content = path.lstat().st_mode, None
        if stat.S_ISREG(mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(mode):
            content = os.readlink(path)
        rows[str(path.relative_to(tree))] = (stat.S_IFMT(mode), mode & 0o777, content)
    return rows


def expect_tree(store, name, tree, tmp_path):
    """The image is a sound file system with the same files, as e2fsprogs see it."""
    disk, out = tmp_path / f"{name}.raw", tmp_path / f"{name}.out"
    store.run("export", name, disk)
    call("e2fsck", "-fn", disk)
    out.mkdir()
    call("debugfs", "-R", f'rdump / "{out}"', disk)
    assert rows_of(out) == rows_of(tree)
    # What debugfs does not write out again: hard links, set-user-id, owners.
    tool = call("debugfs", "-R", "stat /bin/same", disk)
    assert "Links: 2" in tool and "Mode:  04755" in tool
    owner = call("debugfs", "-R", "stat /etc/hostname", disk)
    assert f"User: {os.getuid():5d}   Group: {os.getgid():5d}" in owner and "user.origin" in owner
    return disk


def test_a_tar_becomes_a_file_system(store, tree, tmp_path):
    call("tar", "-C", tree, "--xattrs", "-czf", tmp_path / "root.tgz", ".")
    store.run("import", "--format", "tar", tmp_path / "root.tgz", "image")
    disk = expect_tree(store, "image", tree, tmp_path)
    assert disk.stat().st_size == 1 << 30


def test_the_same_tar_is_the_same_image(store, tree, tmp_path):
    call("tar", "-C", tree, "-cf", tmp_path / "root.tar", ".")
    for part in ("one", "two"):
        store.directory = tmp_path / part
        store.run("import", "-f", "tar", tmp_path / "root.tar", "image")
    manifests = [(tmp_path / part / "images" / "image.manifest").read_bytes() for part in ("one", "two")]
    assert manifests[0] == manifests[1]


def test_a_directory_becomes_a_file_system(store, tree, tmp_path):
    store.run("import", "--format", "dir", tree, "image", "--disk-mib", "256")
    disk = expect_tree(store, "image", tree, tmp_path)
    assert disk.stat().st_size == 256 << 20


def make_oci(layout, layers):
    """An OCI image by umoci: each layer is what a function changed below the root file system."""
    bundle = layout.parent / "bundle"
    call("umoci", "init", "--layout", layout)
    call("umoci", "new", "--image", f"{layout}:app")
    for number, change in enumerate(layers):
        rootless = [] if os.geteuid() == 0 else ["--rootless"]
        call("umoci", "unpack", *rootless, "--image", f"{layout}:app", bundle / str(number))
        change(bundle / str(number) / "rootfs")
        call("umoci", "repack", "--image", f"{layout}:app", bundle / str(number))
    call("umoci", "unpack", *rootless, "--image", f"{layout}:app", bundle / "whole")
    return bundle / "whole" / "rootfs"


@pytest.fixture
def oci(tree, tmp_path):
    def first(root):
        call("cp", "-a", f"{tree}/.", root)
        (root / "gone").write_text("in a lower layer")
        (root / "replaced").mkdir()
        (root / "replaced" / "old").write_text("old")

    def second(root):
        (root / "gone").unlink()
        call("rm", "-r", root / "replaced")
        (root / "replaced").mkdir()
        (root / "replaced" / "new").write_text("new")

    return tmp_path / "layout", make_oci(tmp_path / "layout", [first, second])


def test_the_layers_of_an_oci_image_become_a_file_system(store, oci, tmp_path):
    layout, whole = oci
    store.run("import", "--format", "oci", layout, "app", "--tag", "app")
    expect_tree(store, "app", whole, tmp_path)


def test_an_oci_image_as_an_archive(store, oci, tmp_path):
    layout, whole = oci
    call("tar", "-C", layout, "-cf", tmp_path / "layout.tar", ".")
    store.run("import", "--format", "oci", tmp_path / "layout.tar", "app")
    expect_tree(store, "app", whole, tmp_path)
    assert "tags there: 'app'" in store.run("import", "-f", "oci", layout, "b", "--tag", "other", status=1).stderr


def test_a_blob_that_is_not_what_its_name_says(store, oci):
    layout, _ = oci
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((layout / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_text())
    layer = layout / "blobs/sha256" / manifest["layers"][0]["digest"][7:]
    data = bytearray(layer.read_bytes())
    data[100] ^= 1
    layer.write_bytes(data)
    assert "has another digest" in store.run("import", "-f", "oci", layout, "app", status=1).stderr
    layer.unlink()
    layer.symlink_to("/etc/passwd")
    assert "blobs/sha256" in store.run("import", "-f", "oci", layout, "app", status=1).stderr


def test_qcow2_in_and_out(store, tmp_path):
    raw = make_image(tmp_path / "a.raw", 3)
    call("qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", raw, tmp_path / "a.qcow2")
    store.run("import", "--format", "qcow2", tmp_path / "a.qcow2", "a")
    store.run("export", "a", tmp_path / "back.raw")
    assert (tmp_path / "back.raw").read_bytes() == raw.read_bytes()
    store.run("export", "--format", "qcow2", "a", tmp_path / "back.qcow2")
    call("qemu-img", "check", "-f", "qcow2", tmp_path / "back.qcow2")
    call("qemu-img", "compare", "-f", "raw", "-F", "qcow2", raw, tmp_path / "back.qcow2")
    assert (tmp_path / "back.qcow2").stat().st_size < 5 << 20


def test_qcow2_images_that_name_other_files_are_refused(store, tmp_path):
    secret = make_image(tmp_path / "secret.raw", 4)
    call("qemu-img", "create", "-f", "qcow2", "-b", secret, "-F", "raw", tmp_path / "over.qcow2")
    call("qemu-img", "create", "-f", "qcow2", "-o", f"data_file={tmp_path}/data.raw", tmp_path / "apart.qcow2", "40M")
    call("qemu-img", "create", "-f", "qcow2", tmp_path / "giant.qcow2", "5T")
    call("qemu-img", "create", "-f", "qcow2", "--object", "secret,id=s,data=x", "-o", "encrypt.format=aes,encrypt.key-secret=s",
         tmp_path / "locked.qcow2", "40M")
    for file, reason in {"over": "has a backing file", "apart": "keeps its data in another file", "locked": "is encrypted",
                         "giant": "a disk of 5497558138880 bytes"}.items():
        assert reason in store.run("import", "-f", "qcow2", tmp_path / f"{file}.qcow2", file, status=1).stderr
    # A format is never guessed: as raw it is bytes like any other, and as qcow2 a raw disk is none.
    store.run("import", tmp_path / "over.qcow2", "bytes")
    assert "no qcow2" in store.run("import", "-f", "qcow2", secret, "secret", status=1).stderr
    assert [row["name"] for row in store.json("ls")] == ["bytes"]


@pytest.mark.parametrize("sample", ["dot-dot", "absolute", "through-symlink", "hard-link-outside", "block-device", "fifo",
                                    "giant-size", "sparse-giant", "bomb-of-directories", "cut", "no-tar"])
def test_hostile_archives_are_refused_and_leave_nothing(store, tmp_path, sample):
    (tmp_path / "x.tar").write_bytes((CORPUS / sample).read_bytes()[1:])
    store.run("import", make_image(tmp_path / "a.raw", 1), "a")
    before = sorted(p.name for p in store.directory.rglob("*"))
    said = store.run("import", "-f", "tar", tmp_path / "x.tar", "x", status=1).stderr
    assert len(said.strip().splitlines()[-1]) > 30
    assert sorted(p.name for p in store.directory.rglob("*")) == before


def test_a_bomb_is_refused_before_it_is_unpacked(store, tmp_path):
    bomb = tmp_path / "bomb.tgz"
    with gzip.open(bomb, "wb", compresslevel=1) as out:
        info = tarfile.TarInfo("zeros")
        info.size = 65 << 30
        out.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    said = store.run("import", "-f", "tar", bomb, "x", status=1).stderr
    assert "'zeros' has 69793218560 bytes; of the 68719476736 that may be unpacked" in said


def test_formats_have_names(store, tmp_path):
    image = make_image(tmp_path / "a.raw", 1)
    assert "raw, qcow2, tar, dir and oci" in store.run("import", "-f", "vmdk", image, "a", status=1).stderr
    store.run("import", image, "a")
    assert "raw, qcow2, tar or oci" in store.run("export", "-f", "vmdk", "a", tmp_path / "out", status=1).stderr
    assert not (tmp_path / "out").exists()
