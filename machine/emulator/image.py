"""What runs inside the emulated host: kernel modules, busybox, a few Debian programs, and our own build with its libraries."""

import os
import pathlib

from images import cpio, elf, run

HERE = pathlib.Path(__file__).resolve().parents[1]

# VMGENID, vsock and so on belong to the inner guests; this is only what the host itself needs.
MODULES = ["virtio_blk", "virtio_net", "virtio-rng?CONFIG_HW_RANDOM_VIRTIO", "irqbypass?CONFIG_IRQ_BYPASS_MANAGER",
           "kvm?CONFIG_KVM", "kvm-amd?CONFIG_KVM_AMD", "tun?CONFIG_TUN"]
OWN_PROGRAMS = ["rametd", "ramet-vmm", "ramet-files", "ramet"]
DEBIAN_PROGRAMS = ["/usr/sbin/dropbear", "/usr/sbin/mke2fs", "/usr/sbin/e2fsck", "/usr/sbin/debugfs", "/usr/sbin/dumpe2fs",
                   "/usr/bin/lsattr", "/usr/bin/chattr", "/usr/bin/prlimit", "/usr/bin/setpriv"]
# Without qemu-img the daemon takes and gives no qcow2.
OPTIONAL_PROGRAMS = ["/usr/bin/qemu-img", "/usr/bin/strace", "/usr/bin/gdbserver"]


def build(image, own_programs):
    """The initramfs: uncompressed, because unpacking is slow in emulation and copying is not. `image` is images.kernel.Kernel."""
    archive = cpio.Archive()
    for folder in ("dev", "proc", "sys", "run", "root", "var/lib/ramet", "var/log", "usr/sbin", "sbin"):
        archive.folder(folder)
    archive.folder("tmp", 0o1777)
    archive.character_device("dev/console", 5, 1)
    archive.copy("/bin/busybox", "bin/busybox", 0o755)
    for name in run.check_output(["/bin/busybox", "--list"]).decode().split():
        if name not in ("busybox", "mke2fs"):
            archive.link(f"bin/{name}", "busybox")
    archive.link("init", "bin/busybox")
    for path in sorted(p for p in (HERE / "rootfs").rglob("*") if p.is_file()):
        archive.file(str(path.relative_to(HERE / "rootfs")), path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
    for name, data in image.modules(MODULES):
        archive.file(f"modules/{name}", data)
    archive.file("modules/order", "".join(f"{name}\n" for name, _ in image.modules(MODULES)).encode())
    for program in own_programs:
        archive.file(f"usr/bin/{program.name}", elf.stripped(program), 0o755)
    debian = DEBIAN_PROGRAMS + [p for p in OPTIONAL_PROGRAMS if os.path.exists(p)]
    for program in debian:
        if not os.path.exists(program):
            raise run.BuildError(f"{program} is missing: run tools/bootstrap")
        archive.copy(program, program)
    archive.copy("/etc/mke2fs.conf")
    for program in [*own_programs, *debian]:
        for library in elf.libraries(program):
            if not archive.has(library):
                archive.copy(library)
    return archive.bytes()


def settings_archive(files):
    """A second archive behind the first, for what differs from start to start: keys and settings."""
    archive = cpio.Archive()
    for path, (data, mode) in files.items():
        archive.file(path, data, mode)
    return archive.bytes()
