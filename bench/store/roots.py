"""Root file systems, each built on its own by mmdebstrap and mke2fs -d: they share files, hence blocks, but not where they lie."""

import subprocess

from images import debian, disk, run

from . import inputs

SUITE = "bookworm"


def make(folder, plan, name, packages):
    image = inputs.root_path(folder, name)
    if image.exists():
        return
    disk.require_free(folder, 4 << 30)
    tar, part = folder / f"{name}.tar", image.with_suffix(".part")
    include = [f"--include={','.join(packages)}"] if packages else []
    run.check_output(["nice", "-n", "19", "mmdebstrap", "--quiet", f"--variant={plan.variant}", "--format=tar", *include, SUITE, tar, "-"],
                     input=sources().encode(), hint="is the network reachable?")
    # One label: mke2fs's identifiers, made from it, are the same in all images.
    disk.tar_to_ext4(tar, part, plan.disk_mib * inputs.MIB, "store-bench")
    if name == plan.guest_root:
        (folder / "guest.status").write_bytes(_dpkg_status(tar))
    tar.unlink()
    part.rename(image)


def sources():
    return "\n".join(debian.template_sources(SUITE)) + "\n"


def _dpkg_status(tar):
    done = subprocess.run(["tar", "-xOf", tar, "./var/lib/dpkg/status"], stdout=subprocess.PIPE, check=False)
    return done.stdout if done.returncode == 0 else b""
