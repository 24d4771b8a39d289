"""Starting and stopping: chooses KVM or emulation, builds what the emulated host needs, waits until it answers."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

from images import debian, disk, kernel, run
from images.run import BuildError

from . import image, qemu, shell, state, tsc

STATE_DISK_BYTES = 32 << 30
START_SECONDS = 180
STOP_SECONDS = 30
KERNEL_SECONDS = 60  # until machine/rootfs/sbin/rc speaks, which takes about 3
RC_SPEAKS = "machine: "  # how everything begins that rc says
STALLED_CPU = "machine: a CPU gets no timer interrupts"  # said by rc before it ends


class StalledCpu(BuildError):
    """The emulated host hangs in its kernel, or ended itself because it would sooner or later. A next boot is most likely sound."""


def probe_kvm(vmm):
    """(usable, reason) as ramet-vmm finds it: it times a tiny guest, because a /dev/kvm that opens may still not run one."""
    if not os.path.exists("/dev/kvm"):
        return False, "there is no /dev/kvm"
    if vmm is None:
        return False, "ramet-vmm is not built, so KVM was not tried"
    try:
        done = subprocess.run([vmm, "--probe-kvm", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30, check=False)
        found = json.loads(done.stdout)
        return bool(found["usable"]), str(found.get("reason") or found.get("detail") or "ramet-vmm says so")
    except subprocess.TimeoutExpired:
        return False, "the KVM probe did not end in 30 s"
    except (ValueError, KeyError, TypeError):
        return False, f"the KVM probe failed with status {done.returncode}"


def own_programs(bare):
    """Paths of our programs; with `bare` those that are there."""
    found = []
    for name in image.OWN_PROGRAMS:
        try:
            found.append(run.find_program(name))
        except BuildError:
            if not bare and name != "ramet":
                raise
    return found


def write_images(folder, settings, bare):
    """vmlinuz and initramfs into `folder`."""
    packaged = kernel.Kernel(debian.unpacked_kernel(run.cache_dir()))
    (folder / "vmlinuz").unlink(missing_ok=True)
    (folder / "vmlinuz").write_bytes(packaged.bzimage.read_bytes())
    initramfs = image.build(packaged, own_programs(bare))
    (folder / "initramfs").write_bytes(initramfs + image.settings_archive(settings))


def fingerprint(bare):
    """Changes when a program the machine got changes."""
    return [[str(p), p.stat().st_size, p.stat().st_mtime_ns] for p in own_programs(bare)]


def start(machine, say, bare=False, force_emulation=False):
    """Starts the machine unless it runs. Returns machine.json. `say` prints one line for the user."""
    with machine.lock():
        document = machine.running()
        if document:
            if document.get("programs") != fingerprint(bare=True):
                say("the machine runs an older build: `machine stop` and start again to use the new one")
            return document
        machine.forget()
        vmm = next((p for p in own_programs(bare=True) if p.name == "ramet-vmm"), None)
        usable, reason = probe_kvm(vmm)
        if usable and not force_emulation and not bare:
            say(f"using this computer's KVM ({reason})")
            return _start_native(machine)
        say(f"using an emulated host (slower): {'asked for' if usable else reason}")
        return _start_emulated(machine, say, bare)


def _start_native(machine):
    daemon = run.find_program("rametd")
    run.find_program("ramet-vmm")
    [port] = qemu.free_ports(1)
    environment = {**os.environ, "RAMET_STATE": str(machine.folder.parent)}
    with open(machine.path("rametd.log"), "wb") as log:
        process = subprocess.Popen([daemon, "--state", machine.folder.parent, "--listen", f"127.0.0.1:{port}"],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment)
    document = _document(process, "native", port)
    machine.write_document(document)
    _wait_for_api(machine, document)
    return document


def _start_emulated(machine, say, bare):
    own_programs(bare)  # says what is not built before anything is made
    settings = shell.make_keys(machine)
    write_images(machine.folder, settings, bare)
    _make_state_disk(machine, say)
    memory_mib = qemu.default_memory_mib()
    cpus = max(2, min(os.cpu_count() or 2, 8))
    for boots_left in (2, 1, 0):
        try:
            return _boot(machine, say, bare, memory_mib, cpus)
        except StalledCpu:
            if boots_left == 0:
                raise
            say("the emulated host hangs, or a CPU of it gets no timer interrupts (a fault of the emulator): booting it again")


def _boot(machine, say, bare, memory_mib, cpus):
    """One boot, until it answers."""
    tsc_khz = tsc.measure_khz()
    for attempt in (1, 2, 3):
        api_port, ssh_port = qemu.free_ports(2)
        process = qemu.spawn(qemu.command_line(memory_mib, cpus, api_port, ssh_port, tsc_khz), machine.folder)
        document = _document(process, "emulated", api_port, ssh_port=ssh_port, memory_mib=memory_mib, cpus=cpus, bare=bare)
        machine.write_document(document)
        time.sleep(0.3)
        if process.poll() is None:
            break
        words = machine.path("qemu.log").read_text(errors="replace").strip()
        machine.forget()
        if "Could not set up host forwarding" not in words or attempt == 3:
            raise BuildError(f"QEMU ended at once with status {process.returncode}: {words or 'it said nothing'}")
    say(f"booting it with {cpus} CPUs and {memory_mib} MiB; console in {machine.path('console.log')}")
    if bare:
        _wait(machine, document, lambda: _shell_answers(machine, document), "its shell does not answer")
    else:
        _wait_for_api(machine, document)
    return document


def _document(process, kind, port, **more):
    return {"url": f"http://127.0.0.1:{port}", "pid": process.pid, "start_time": state.start_time(process.pid), "kind": kind,
            "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "programs": fingerprint(bare=True), **more}


def _make_state_disk(machine, say):
    """The disk keeps templates and sandboxes from one start to the next. Sparse: it takes what is used."""
    path = machine.path("state.img")
    if path.exists():
        return
    say(f"making its state disk ({STATE_DISK_BYTES >> 30} GiB, sparse)")
    part = path.with_suffix(".part")
    disk.ext4_image(part, STATE_DISK_BYTES, "ramet-state", extra=["-i", "65536"])
    part.rename(path)


def answers(document):
    """True if the API's health route answers."""
    try:
        with urllib.request.urlopen(f"{document['url']}/v1/health", timeout=2) as response:
            return response.status == 200
    except (OSError, urllib.error.URLError, ValueError):
        return False


def _shell_answers(machine, document):
    return shell.run_command(machine, document, ["true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def _wait_for_api(machine, document):
    _wait(machine, document, lambda: answers(document), "its API does not answer")


def _wait(machine, document, ready, complaint):
    """Waits for `ready`; if the machine dies, hangs or takes too long it is stopped, and the end of its logs told."""
    begin = time.monotonic()
    problem = f"{complaint} after {START_SECONDS} s"
    stalled = False
    while time.monotonic() < begin + START_SECONDS:
        if state.start_time(document["pid"]) != document["start_time"]:
            problem = "it ended while starting"
            break
        if ready():
            return
        if document["kind"] == "emulated" and time.monotonic() > begin + KERNEL_SECONDS and not _says(machine, RC_SPEAKS):
            problem = f"its kernel does not get to user space in {KERNEL_SECONDS} s"
            stalled = True
            break
        time.sleep(0.3)
    if state.signal_process(document, signal.SIGTERM) and not state.wait_gone(document, 10):
        state.signal_process(document, signal.SIGKILL)
        state.wait_gone(document, 10)
    machine.forget()
    stalled = stalled or _says(machine, STALLED_CPU)
    raise (StalledCpu if stalled else BuildError)("\n".join([f"the machine did not come up: {problem}", *_log_tails(machine)]))


def _says(machine, words):
    console = machine.path("console.log")  # of an emulated host only
    return console.exists() and words in console.read_text(errors="replace")


def _log_tails(machine):
    lines = []
    for name in ("qemu.log", "console.log", "rametd.log"):
        path = machine.path(name)
        if path.exists() and path.stat().st_size:
            tail = path.read_text(errors="replace").strip().splitlines()[-8:]
            lines += [f"  {path}:", *(f"    {line.rstrip()}" for line in tail)]
    return lines


def stop(machine):
    """Asks the machine to power off, then ends its process by pid. True if there was one."""
    with machine.lock():
        document = machine.running()
        if not document:
            machine.forget()
            return False
        if document["kind"] == "emulated":
            shell.run_command(machine, document, ["poweroff"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        else:
            state.signal_process(document, signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if state.wait_gone(document, STOP_SECONDS):
                break
            state.signal_process(document, number)
        if not state.wait_gone(document, 5):
            raise BuildError(f"process {document['pid']} does not end: look at {machine.path('console.log')}")
        machine.forget()
        return True
