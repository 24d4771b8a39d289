"""Which images there are, in which order they are stored, and which is a version of which."""

import dataclasses
import pathlib

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Plan:
    disk_mib: int
    memory_mib: int
    variant: str  # mmdebstrap's
    roots: dict  # name: packages
    edited: str  # the root that gets edited versions
    edits: tuple
    guest_root: str
    guest_packages: tuple  # two lists: installed at the second moment, and at the fourth
    configured: bool  # whether the guest's dpkg can configure, or only unpack
    moments: tuple


FULL = Plan(
    disk_mib=1536, memory_mib=1024, variant="minbase",
    roots={
        "minimal": [],
        "python": ["python3", "python3-pip"],
        "git": ["git", "curl"],
        "node": ["nodejs", "npm"],
        "build": ["build-essential"],
        "all": ["python3", "python3-pip", "git", "curl", "nodejs", "npm", "build-essential"],
    },
    edited="all", edits=("edit", "new", "rewrite", "random", "delete"),
    guest_root="minimal", guest_packages=(["python3", "git"], ["gcc", "libc6-dev"]), configured=True,
    moments=("boot", "packages", "work", "compiler", "edit", "small"))

# Packages are only unpacked: configuring them is what takes the time.
_UNPACKED = ["base-files", "bash", "coreutils", "dash", "dpkg", "findutils", "grep", "gzip", "libc-bin", "mawk", "perl-base", "sed", "tar"]
QUICK = Plan(
    disk_mib=512, memory_mib=256, variant="extract",
    roots={"minimal": _UNPACKED, "python": [*_UNPACKED, "python3"]},
    edited="python", edits=("edit", "rewrite"),
    guest_root="minimal", guest_packages=(["libpython3.11-stdlib"], ["binutils-common"]), configured=False,
    moments=("boot", "packages", "edit"))


@dataclasses.dataclass(frozen=True)
class Input:
    group: str  # root, edited, guest disk, guest memory
    name: str
    path: pathlib.Path
    parent: str  # name of the input that it is a version of, or ""

    @property
    def bytes(self):
        return self.path.stat().st_size

    @property
    def allocated_bytes(self):
        return self.path.stat().st_blocks * 512


def listing(folder, plan):
    """All inputs in the order in which they are stored."""
    rows = [Input("root", f"root-{name}", root_path(folder, name), "") for name in plan.roots]
    rows += _versions("edited", "edited", [(n, edited_path(folder, n)) for n in plan.edits], f"root-{plan.edited}")
    rows += _versions("guest disk", "disk", [(n, disk_path(folder, n)) for n in plan.moments], f"root-{plan.guest_root}")
    rows += _versions("guest memory", "memory", [(n, memory_path(folder, n)) for n in plan.moments], "")
    return rows


def _versions(group, prefix, named_paths, parent):
    rows = []
    for name, path in named_paths:
        rows.append(Input(group, f"{prefix}-{name}", path, parent))
        parent = rows[-1].name
    return rows


def root_path(folder, name):
    return folder / f"root-{name}.img"


def edited_path(folder, name):
    return folder / f"edited-{name}.img"


def disk_path(folder, moment):
    return folder / f"disk-{moment}.img"


def memory_path(folder, moment):
    return folder / f"memory-{moment}.img"
