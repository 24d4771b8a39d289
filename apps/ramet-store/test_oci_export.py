"""Images as OCI images, beside the programs that people have: skopeo and umoci; and beside the tar of the same files."""
import hashlib
import json
import os
import stat
import struct

import pytest
from stores import ONLY_ROOT, call, expect_same, make_files, make_image, set_times, unpack


@pytest.fixture
def tree(tmp_path):
    """One of everything that an import takes."""
    root = tmp_path / "root"
    make_files(root)
    os.setxattr(root / "etc" / "hostname", "user.origin", b"te\0st")
    with open(root / "sparse", "wb") as out:
        out.write(b"begin")
        out.seek(5 << 20)
        out.write(b"middle")
        out.truncate(30 << 20)
    for name in ("naïve name", "new\nline", os.fsdecode(b"latin\xe9"), "a" * 255, ".whale"):
        (root / name).write_text(name, errors="surrogateescape")
    deep = root / "/".join(["deep"] * 40)
    deep.mkdir(parents=True)
    (deep / "file").write_text("down here")
    set_times(root)
    return root


@pytest.fixture
def disk(tree, tmp_path):
    """A disk with what only a guest would write. Without ACLs, which container programs leave out."""
    (tree / "dev").mkdir()
    os.mknod(tree / "dev" / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(tree / "dev" / "disk", stat.S_IFBLK | 0o660, os.makedev(259, 300))
    os.link(tree / "dev" / "null", tree / "dev" / "zilch")
    os.mkfifo(tree / "fifo")
    os.chown(tree / "etc" / "hostname", 100_000, 70_000)
    os.setxattr(tree / "bin" / "tool", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0))
    os.setxattr(tree / "bin", "user.large", b"x" * 3000)
    for path in [*tree.rglob("*"), tree]:
        os.utime(path, (1_700_000_001, 1_700_000_002), follow_symlinks=False)
    call("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-d", tree, tmp_path / "disk.raw", "256M")
    return tmp_path / "disk.raw"


def blob(layout, descriptor):
    """What a descriptor names, if it is what it says."""
    algorithm, digest = descriptor["digest"].split(":")
    content = (layout / "blobs" / algorithm / digest).read_bytes()
    assert len(content) == descriptor["size"] and hashlib.sha256(content).hexdigest() == digest
    return content


@ONLY_ROOT
def test_an_archive_and_a_layout_say_what_they_are(store, tree, tmp_path):
    store.run("import", "-f", "dir", tree, "app")
    store.run("export", "-f", "oci", "app", tmp_path / "app.oci.tar")
    store.run("export", "-f", "oci", "app", f"{tmp_path}/layout/")
    layout = tmp_path / "layout"
    call("diff", "-r", unpack(tmp_path / "app.oci.tar", tmp_path / "unpacked"), layout)
    store.run("export", "-f", "tar", "app", tmp_path / "app.tar")
    index = json.loads((layout / "index.json").read_text())
    (image,) = index["manifests"]
    assert image["annotations"] == {"org.opencontainers.image.ref.name": "app"}
    manifest = json.loads(blob(layout, image))
    (layer,) = manifest["layers"]
    assert blob(layout, layer) == (tmp_path / "app.tar").read_bytes()
    config = json.loads(blob(layout, manifest["config"]))
    assert config == {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
    assert len(list((layout / "blobs" / "sha256").iterdir())) == 3
    # The same image is the same bytes.
    store.run("export", "-f", "oci", "app", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "app.oci.tar").read_bytes()
    store.run("export", "-f", "oci", "app", tmp_path / "again", status=1)


@ONLY_ROOT
def test_skopeo_and_umoci_take_it(store, disk, tree, tmp_path):
    store.run("import", disk, "app")
    archive = tmp_path / "app.oci.tar"
    store.run("export", "-f", "oci", "app", archive)
    said = json.loads(call("skopeo", "inspect", f"oci-archive:{archive}"))
    assert (said["Architecture"], said["Os"], len(said["Layers"])) == ("amd64", "linux", 1)
    call("skopeo", "copy", f"oci-archive:{archive}:app", f"oci:{tmp_path}/copy:app")
    call("umoci", "unpack", "--image", f"{tmp_path}/copy:app", tmp_path / "bundle")
    store.run("export", "-f", "tar", "app", tmp_path / "app.tar")
    there, ours = tmp_path / "bundle" / "rootfs", unpack(tmp_path / "app.tar", tmp_path / "by-tar")
    assert stat.S_ISBLK((there / "dev" / "disk").stat().st_mode) and (there / "dev" / "null").stat().st_nlink == 2
    assert (there / "etc" / "hostname").stat().st_uid == 100_000
    expect_same(ours, there)


@ONLY_ROOT
def test_it_comes_back_as_it_went_out(store, tree, tmp_path):
    store.run("import", "-f", "dir", tree, "app")
    store.run("export", "-f", "oci", "app", tmp_path / "app.oci.tar")
    store.run("export", "-f", "oci", "app", f"{tmp_path}/layout/")
    for number, source in enumerate((tmp_path / "app.oci.tar", tmp_path / "layout")):
        store.run("import", "-f", "oci", source, f"back-{number}", "--tag", "app")
        store.run("export", "-f", "dir", f"back-{number}", tmp_path / f"back-{number}")
        expect_same(tree, tmp_path / f"back-{number}")


def test_a_name_that_would_take_a_file_away_is_refused(store, tree, tmp_path):
    (tree / "deep" / ".wh.deep").write_text("a file like any other")
    store.run("import", "-f", "dir", tree, "app")
    done = store.run("export", "-f", "oci", "app", tmp_path / "app.oci.tar", status=1)
    assert "'./deep/.wh.deep' cannot stand in a layer of an OCI image" in done.stderr and "Export the image as tar" in done.stderr
    store.run("export", "-f", "oci", "app", f"{tmp_path}/layout/", status=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["root", "store"]
    store.run("export", "-f", "tar", "app", tmp_path / "app.tar")


def test_disks_without_files_are_refused(store, tmp_path):
    store.run("import", make_image(tmp_path / "a.raw", 1), "a")
    done = store.run("export", "-f", "oci", "a", tmp_path / "out", status=1)
    assert "does not begin with an ext4 file system" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.raw", "store"]
