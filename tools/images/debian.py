"""Debian archive of this machine: where it is, and the newest cloud kernel it offers.

No host name is written down here: everything comes from the machine's own apt configuration.
"""

import re
import shutil
import subprocess

from .run import BuildError, check_output, locked

# VMGENID is built in from 6.12 on (docs/architecture.md); the stock kernel of Debian 12 is older, its backports are not.
MINIMUM_KERNEL = "6.12"
KERNEL_PACKAGE = "linux-image-cloud-amd64"


def template_sources(suite):
    """apt source lines for `suite` and its security updates, at the mirrors this machine uses itself."""
    form = "$(REPO_URI)|$(RELEASE)|$(LABEL)"
    rows = check_output(["apt-get", "indextargets", "--format", form, "Identifier: Packages"]).decode().splitlines()
    main = security = None
    for row in rows:
        uri, release, label = row.split("|")
        if release.endswith("-security") or label == "Debian-Security":
            security = security or uri
        elif label == "Debian" and not release.endswith("-updates"):
            main = main or uri
    if not main:
        raise BuildError("apt knows no Debian archive: run `apt-get update` and look at /etc/apt/sources.list.d")
    lines = [f"deb {main} {suite} main"]
    if security:
        lines.append(f"deb {security} {suite}-security main")
    return lines


def _newer(a, b):
    return subprocess.run(["dpkg", "--compare-versions", a, "gt", b], check=False).returncode == 0


def newest_kernel_package():
    """Name of the concrete image package behind the newest linux-image-cloud-amd64, e.g. linux-image-6.12.95+...-cloud-amd64."""
    text = check_output(["apt-cache", "show", KERNEL_PACKAGE], hint="run tools/bootstrap, it enables backports").decode()
    best = None
    for stanza in text.strip().split("\n\n"):
        version = re.search(r"^Version: (.*)$", stanza, re.M)
        depends = re.search(r"^Depends:.*?(linux-image-[0-9][^ ,]*)", stanza, re.M)
        if version and depends and (best is None or _newer(version[1], best[0])):
            best = (version[1], depends[1])
    if best is None or _newer(MINIMUM_KERNEL, best[0]):
        found = best[0] if best else "none"
        raise BuildError(f"newest {KERNEL_PACKAGE} is {found}, need {MINIMUM_KERNEL}: run tools/bootstrap, it enables backports")
    return best[1]


def unpacked_kernel(cache, fresh=False):
    """Folder with boot/vmlinuz-RELEASE and lib/modules/RELEASE of the newest cloud kernel. Downloaded once; nothing is installed
    on this machine. `fresh` asks the archive again."""
    home = cache / "kernel"
    home.mkdir(exist_ok=True)
    with locked(home / "all"):
        current = home / "current"
        if current.exists() and not fresh:
            return current.resolve()
        package = newest_kernel_package()
        target = home / package
        if not target.exists():
            work = home / "work"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            check_output(["apt-get", "-q", "download", package], cwd=work, hint="is the network reachable?")
            for deb in work.glob("*.deb"):
                check_output(["dpkg-deb", "-x", deb, work / "root"])
            (work / "root").rename(target)
            shutil.rmtree(work)
        current.unlink(missing_ok=True)
        current.symlink_to(target.name)
        return target
