"""QEMU's command line, and the process started with it."""

import os
import socket
import subprocess

from images.run import BuildError

QEMU = "qemu-system-x86_64"
API_PORT = 8080  # inside
# isolcpus=0: no process runs on CPU 0, for the reason that command_line() gives.
KERNEL_COMMAND_LINE = "console=ttyS0 reboot=t panic=-1 quiet mitigations=off tsc=reliable isolcpus=0"


def default_memory_mib():
    """Half of this computer's memory, at most 8 GiB; $RAMET_MACHINE_MEMORY_MIB overrides."""
    wanted = os.environ.get("RAMET_MACHINE_MEMORY_MIB")
    if wanted:
        if not wanted.isdigit() or int(wanted) < 1024:
            raise BuildError(f"RAMET_MACHINE_MEMORY_MIB is '{wanted}', need a number of at least 1024")
        return int(wanted)
    total_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    memory_mib = min(total_mib // 2, 8192)
    if memory_mib < 1024:
        raise BuildError(f"this computer has {total_mib} MiB of memory; the emulated host needs half of at least 2048 MiB")
    return memory_mib


def free_ports(count):
    """Ports on 127.0.0.1 nobody listens on right now. QEMU may still lose the race; then it says so and start tries again."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def command_line(memory_mib, cpus, api_port, ssh_port, tsc_khz):
    """File names are relative to STATE/machine, the working directory: a unix socket path must stay under 108 bytes.

    -cpu EPYC with SVM lets Debian's kvm-amd load; tsc=reliable: else every inner guest sees its clock jump; for
    tsc_early_khz see tsc.py. One CPU more than asked for, because none of ours may run on CPU 0: when any other CPU loads x87 state
    (XRSTOR, at every switch to a guest), QEMU's thread for it rewrites the flags of CPU 0 without a lock, and the flag "nested paging is
    on" gets lost if CPU 0 is just entering a guest. That guest then runs on the host's physical addresses: both end in
    a triple fault or a panic (seen in QEMU 10.0, docs/decisions/0005). The network only leads in, by the two forwarded ports (restrict=on).
    """
    forward = f"hostfwd=tcp:127.0.0.1:{api_port}-:{API_PORT},hostfwd=tcp:127.0.0.1:{ssh_port}-:22"
    return [
        QEMU, "-name", "ramet-machine", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
        "-M", "q35", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "EPYC,+svm,+npt,+nrip-save",
        "-smp", str(cpus + 1), "-m", str(memory_mib),
        "-kernel", "vmlinuz", "-initrd", "initramfs", "-append", f"{KERNEL_COMMAND_LINE} tsc_early_khz={tsc_khz}",
        "-drive", "file=state.img,if=none,id=state,format=raw,cache=writeback,discard=unmap,aio=threads",
        "-device", "virtio-blk-pci,drive=state",
        "-netdev", f"user,id=net,restrict=on,{forward}", "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "virtio-rng-pci",
        "-chardev", "socket,id=console,path=console.sock,server=on,wait=off,logfile=console.log", "-serial", "chardev:console",
        "-chardev", "file,id=daemon,path=rametd.log", "-serial", "chardev:daemon",
    ]


def spawn(argv, folder):
    """Starts QEMU detached from this terminal; its own words go to qemu.log."""
    with open(folder / "qemu.log", "wb") as log:
        try:
            return subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                    umask=0o077)
        except FileNotFoundError:
            raise BuildError(f"{QEMU} is not installed: run tools/bootstrap") from None
