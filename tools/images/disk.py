"""Root disks: a Debian system by mmdebstrap, put into a sparse ext4 image by mke2fs. Nothing is ever mounted."""

import hashlib
import os
import pathlib
import shutil
import tempfile

from .run import BuildError, check_output

# Blocks of 4096 bytes like the virtual disk. A small journal bounds how far a branch's disk diverges just by fsync. A new
# sparse file is all zeros, so the inode tables need no lazy writing later in every fork.
EXT4 = ["-t", "ext4", "-b", "4096", "-m", "1", "-J", "size=16",
        "-E", "nodiscard,assume_storage_prezeroed=1,lazy_itable_init=0,lazy_journal_init=0"]


def ext4_image(path, size_bytes, label, tree=None, extra=()):
    """Makes a sparse ext4 image; `tree` is a folder to fill it with. The same input gives the same image."""
    identity = hashlib.sha256(label.encode()).hexdigest()
    uuid = f"{identity[:8]}-{identity[8:12]}-4{identity[13:16]}-8{identity[17:20]}-{identity[20:32]}"
    pathlib.Path(path).unlink(missing_ok=True)
    with open(path, "wb") as file:
        file.truncate(size_bytes)
    options = [*EXT4[:-1], f"{EXT4[-1]},hash_seed={uuid},root_owner=0:0"]
    fill = ["-d", tree] if tree else []
    check_output(["mke2fs", "-q", "-F", *options, "-U", uuid, "-L", label, *extra, *fill, path],
                 env={**os.environ, "E2FSPROGS_FAKE_TIME": "1700000000"})


def debootstrap(tar, suite, sources, packages, setup):
    """Writes a tar of a minimal Debian with `packages`, then changed by the program `setup` (argument: its root folder)."""
    text = "\n".join(sources) + "\n"
    check_output(["mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", f"--include={','.join(packages)}",
                  "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
                  "--dpkgopt=path-include=/usr/share/doc/*/copyright",
                  f"--customize-hook={setup} \"$1\"", suite, tar, "-"],
                 input=text.encode(), env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}, hint="is the network reachable?")


def tar_to_ext4(tar, image, size_bytes, label):
    """Unpacks a root file system's tar and makes its image; as an ordinary user inside a user namespace, so owners are kept."""
    if os.geteuid() != 0:
        inside = ("import sys; from images.disk import _unpack_and_make as make; "
                  "make(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])")
        folder = str(pathlib.Path(__file__).resolve().parents[1])
        check_output(["unshare", "--map-root-user", "--map-auto", "--mount", "--", "/usr/bin/python3", "-c", inside,
                      tar, image, str(size_bytes), label], env={**os.environ, "PYTHONPATH": folder},
                     hint="needs user namespaces and a range in /etc/subuid")
        return
    _unpack_and_make(tar, image, size_bytes, label)


def _unpack_and_make(tar, image, size_bytes, label):
    tree = tempfile.mkdtemp(prefix="rootfs.", dir=pathlib.Path(image).parent)
    try:
        os.chmod(tree, 0o755)
        # Device nodes come from devtmpfs at boot and cannot be made without privilege.
        check_output(["tar", "-x", "-p", "--xattrs", "--xattrs-include=*", "--numeric-owner", "--exclude=./dev/*", "-f", tar, "-C", tree])
        ext4_image(image, size_bytes, label, tree)
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def copy_sparse(source, target):
    check_output(["cp", "--sparse=always", "--reflink=auto", source, target])


def require_free(folder, need_bytes):
    free = shutil.disk_usage(folder).free
    if free < need_bytes:
        raise BuildError(f"{folder} has {free >> 20} MiB free, this needs {need_bytes >> 20} MiB: free some space or set RAMET_CACHE")
