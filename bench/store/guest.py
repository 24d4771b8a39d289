"""Disk and memory of one real guest at several moments, emulated by QEMU. The guest has no network: its packages lie on a second disk."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from images import cpio, debian, disk, kernel, run

from . import inputs, roots

HERE = pathlib.Path(__file__).resolve().parent
MOMENT_TIMEOUT_S = 3600  # emulated, on a busy computer


def make(folder, plan):
    last = inputs.memory_path(folder, plan.moments[-1])
    if last.exists():
        return
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        scratch = pathlib.Path(scratch)
        _write_initrd(scratch / "initrd")
        _write_work_disk(scratch, folder, plan)
        disk.copy_sparse(inputs.root_path(folder, plan.guest_root), scratch / "disk.img")
        with Guest(scratch, plan.memory_mib) as guest:
            for moment in plan.moments:
                guest.wait_for(moment)
                guest.stop()
                for source, target in (("disk.img", inputs.disk_path(folder, moment)), ("memory.img", inputs.memory_path(folder, moment))):
                    disk.copy_sparse(scratch / source, target.with_suffix(".part"))
                    target.with_suffix(".part").rename(target)
                guest.go_on()


def _write_initrd(path):
    image = kernel.Kernel(debian.unpacked_kernel(run.cache_dir()))
    archive = cpio.Archive()
    for name in ("dev", "proc", "new"):
        archive.folder(name)
    archive.character_device("dev/console", 5, 1)
    archive.copy("/bin/busybox", "bin/busybox", 0o755)
    archive.file("init", (HERE / "guest_init.sh").read_bytes(), 0o755)
    modules = image.modules(["virtio_blk"])
    for name, data in modules:
        archive.file(f"modules/{name}", data)
    archive.file("modules/order", "".join(f"{name}\n" for name, _ in modules).encode())
    path.write_bytes(archive.bytes())
    shutil.copy(image.bzimage, path.with_name("vmlinuz"))


def _write_work_disk(scratch, folder, plan):
    tree = scratch / "work"
    _download(tree, folder, plan)
    install = "install" if plan.configured else "unpack"
    work = (HERE / "guest_work.sh").read_text(encoding="utf-8")
    (tree / "work").write_text(work.replace("@INSTALL@", install).replace("@MOMENTS@", " ".join(plan.moments)), encoding="utf-8")
    disk.ext4_image(scratch / "work.img", 512 * inputs.MIB, "store-bench-work", tree)
    shutil.rmtree(tree)


def _download(tree, folder, plan):
    """The packages of each list and what they need beyond the guest's root, one folder per list. Asks apt without touching this
    computer's own state."""
    apt = tree.parent / "apt"
    for name in ("state/lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "sources.list").write_text(roots.sources(), encoding="ascii")
    shutil.copy(folder / "guest.status", apt / "status")
    settings = {"Dir::State": apt / "state", "Dir::State::status": apt / "status", "Dir::Cache": apt / "cache",
                "Dir::Etc::SourceList": apt / "sources.list", "Dir::Etc::SourceParts": "/dev/null", "APT::Sandbox::User": "root"}
    apt_get = ["apt-get", "-q", "-y", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    run.check_output([*apt_get, "update"], hint="is the network reachable?")
    known, wanted = set(), []
    for number, packages in enumerate(plan.guest_packages):
        wanted += packages
        target = tree / f"packages-{number + 1}"
        target.mkdir(parents=True)
        if plan.configured:
            run.check_output([*apt_get, "install", "--download-only", "--no-install-recommends", *wanted])
        else:
            run.check_output([*apt_get, "download", *packages], cwd=apt / "cache/archives")
        files = set((apt / "cache/archives").glob("*.deb"))
        for file in files - known:
            shutil.copy(file, target)
        known |= files


class Guest:
    """A running QEMU: wait for a moment that the guest names on its serial line, stop it, let it go on."""

    def __init__(self, scratch, memory_mib):
        self.scratch = scratch
        argv = ["nice", "-n", "19", "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                "-M", "q35,memory-backend=ram", "-accel", "tcg,tb-size=256", "-cpu", "max", "-m", str(memory_mib),
                "-object", f"memory-backend-file,id=ram,size={memory_mib}M,mem-path=memory.img,share=on",
                "-kernel", "vmlinuz", "-initrd", "initrd", "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable",
                "-drive", "file=disk.img,if=none,id=root,format=raw", "-device", "virtio-blk-pci,drive=root",
                "-drive", "file=work.img,if=none,id=work,format=raw,readonly=on", "-device", "virtio-blk-pci,drive=work",
                "-chardev", "socket,id=serial,path=serial.sock,server=on,wait=off", "-serial", "chardev:serial",
                "-qmp", "unix:qmp.sock,server=on,wait=off"]
        self.process = subprocess.Popen(argv, cwd=scratch, stdin=subprocess.DEVNULL)
        self.seen = []

    def __enter__(self):
        self.serial = self._connect("serial.sock")
        self.qmp = self._connect("qmp.sock").makefile("rw")
        self.qmp.readline()  # its greeting
        self._command("qmp_capabilities")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def wait_for(self, moment):
        end = time.monotonic() + MOMENT_TIMEOUT_S
        for line in self.serial_lines(end):
            self.seen.append(line)
            if line == f"MOMENT {moment}":
                return
        raise run.BuildError("\n  ".join([f"the guest did not come to the moment '{moment}'; its last words:", *self.seen[-12:]]))

    def serial_lines(self, end):
        text = b""
        while time.monotonic() < end:
            self.serial.settimeout(max(0.1, end - time.monotonic()))
            try:
                more = self.serial.recv(4096)
            except TimeoutError:
                return
            if not more:
                return
            text += more
            while b"\n" in text:
                line, text = text.split(b"\n", 1)
                yield line.decode(errors="replace").strip()

    def stop(self):
        self._command("stop")

    def go_on(self):
        self._command("cont")
        self.serial.sendall(b"\n")

    def _command(self, name):
        self.qmp.write(json.dumps({"execute": name}) + "\n")
        self.qmp.flush()
        while "return" not in (reply := json.loads(self.qmp.readline())):
            if "error" in reply:
                raise run.BuildError(f"QEMU refuses {name}: {reply['error']}")

    def _connect(self, name):
        # A relative path: those of unix sockets are short.
        before = os.getcwd()
        os.chdir(self.scratch)
        try:
            for _ in range(600):
                if self.process.poll() is not None:
                    raise run.BuildError(f"QEMU ended with status {self.process.returncode}")
                one = socket.socket(socket.AF_UNIX)
                try:
                    one.connect(name)
                    return one
                except OSError:
                    one.close()
                    time.sleep(0.1)
            raise run.BuildError(f"QEMU does not answer at {name}")
        finally:
            os.chdir(before)
