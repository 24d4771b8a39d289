"""The files of images as tars and directories, beside tar, diff and the kernel."""
import os
import pathlib
import stat
import struct
import subprocess

import pytest
from stores import ONLY_ROOT, call, expect_same, make_files, make_image, set_times, unpack

NOBODY = 65534


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
    os.truncate(os.open(root / "hole", os.O_CREAT | os.O_WRONLY), 100 << 20)
    for name in ("naïve name", "new\nline", os.fsdecode(b"latin\xe9"), "a" * 255):
        (root / name).write_text(name, errors="surrogateescape")
    (root / "empty").mkdir()
    deep = root / "/".join(["deep"] * 40)
    deep.mkdir(parents=True)
    (deep / "file").write_text("down here")
    (root / "many").mkdir()
    for i in range(1500):
        (root / "many" / f"file {i}").write_text(str(i) * (i % 30))
    return root


def test_a_tar_comes_out_as_it_went_in(store, tree, tmp_path):
    set_times(tree)
    call("tar", "-C", tree, "--format=posix", "--xattrs", "--sparse", "-cf", tmp_path / "in.tar", ".")
    store.run("import", "-f", "tar", tmp_path / "in.tar", "a")
    store.run("export", "-f", "tar", "a", tmp_path / "out.tar")
    out = unpack(tmp_path / "out.tar", tmp_path / "out")
    expect_same(unpack(tmp_path / "in.tar", tmp_path / "in"), out)
    # Holes are holes, in the tar and out of it.
    assert (tmp_path / "out.tar").stat().st_size < 8 << 20
    assert (out / "sparse").stat().st_blocks * 512 < 1 << 20 and (out / "hole").stat().st_blocks * 512 < 1 << 20
    # Once more round is the same file.
    store.run("import", "-f", "tar", tmp_path / "out.tar", "b")
    store.run("export", "-f", "tar", "b", tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "out.tar").read_bytes()


def test_a_directory_comes_out_as_it_went_in(store, tree, tmp_path):
    set_times(tree)
    store.run("import", "-f", "dir", tree, "a")
    store.run("export", "-f", "dir", "a", tmp_path / "out")
    call("diff", "-r", "--no-dereference", tree, tmp_path / "out")
    expect_same(tree, tmp_path / "out")
    store.run("export", "-f", "dir", "a", tmp_path / "out", status=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "root", "store"]


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


@pytest.fixture
def disk(tree, tmp_path):
    """A disk with what only a guest would write: by mke2fs, which knows whole seconds alone."""
    (tree / "dev").mkdir()
    os.mknod(tree / "dev" / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(tree / "dev" / "disk", stat.S_IFBLK | 0o660, os.makedev(259, 300))
    os.link(tree / "dev" / "null", tree / "dev" / "zilch")
    os.mkfifo(tree / "fifo")
    os.chown(tree / "etc" / "hostname", 100_000, 70_000)
    some = acl((1, 6, -1), (2, 4, 1234), (4, 4, -1), (8, 5, 77777), (16, 5, -1), (32, 4, -1))
    os.setxattr(tree / "etc" / "hostname", "system.posix_acl_access", some)
    os.setxattr(tree / "empty", "system.posix_acl_default", some)
    os.setxattr(tree / "bin" / "tool", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0))
    os.setxattr(tree / "bin", "user.large", b"x" * 3000)
    for path in [*tree.rglob("*"), tree]:
        os.utime(path, (1_700_000_001, 1_700_000_002), follow_symlinks=False)
    call("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-d", tree, tmp_path / "disk.raw", "256M")
    return tmp_path / "disk.raw"


@ONLY_ROOT
def test_what_guests_write_comes_out_too(store, disk, tree, tmp_path):
    store.run("import", disk, "a")
    store.run("export", "-f", "tar", "a", tmp_path / "out.tar")
    for out in (unpack(tmp_path / "out.tar", tmp_path / "by-tar"), tmp_path / "by-us"):
        if not out.exists():
            store.run("export", "-f", "dir", "a", out)
        os.utime(tree, (1_700_000_001, 1_700_000_002))
        os.utime(out, (1_700_000_001, 1_700_000_002))  # lost+found changed the root's
        expect_same(tree, out)


@ONLY_ROOT
def test_without_root_devices_and_owners_are_left_out(store, disk, tmp_path):
    store.run("import", disk, "a")
    place = tmp_path / "place"
    place.mkdir()
    for path in [place, store.directory, *store.directory.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    for path in [tmp_path, *tmp_path.parents][:3]:
        path.chmod(0o755)
    done = subprocess.run(["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups",
                           *store.command("-q", "export", "-f", "dir", "a", place / "out")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == "3 device nodes were left out: only root can make them"
    assert "could not be made as they are, the first: " in lines[1] and len(lines) == 2
    assert (place / "out" / "etc" / "hostname").read_text() == "sandbox\n"
    assert (place / "out" / "etc" / "hostname").stat().st_uid == NOBODY
    assert list((place / "out" / "dev").iterdir()) == []


def test_disks_without_files_are_refused(store, tmp_path):
    store.run("import", make_image(tmp_path / "a.raw", 1), "a")
    for form in ("tar", "dir"):
        done = store.run("export", "-f", form, "a", tmp_path / "out", status=1)
        assert "does not begin with an ext4 file system" in done.stderr and "Export it as raw" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.raw", "store"]


@ONLY_ROOT
def test_where_no_locale_is_installed_names_stay_as_they_are(store, tree, tmp_path):
    store.run("import", "-f", "dir", tree, "a")
    bare = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /usr/lib/locale && mount -t tmpfs none /usr/lib/x86_64-linux-gnu/gconv && "$@"', "sh"]
    call(*bare, *store.command("-q", "export", "-f", "tar", "a", tmp_path / "out.tar"))
    call("diff", "-r", "--no-dereference", tree, unpack(tmp_path / "out.tar", tmp_path / "out"))
