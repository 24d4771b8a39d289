"""Commands and files into the emulated host: ssh to 127.0.0.1 with keys made for this machine alone.

Any number of callers at once, output and exit status as they are. The key and the pinned host key live in STATE/machine (0700).
"""

import pathlib
import shlex
import subprocess

from images.elf import libraries
from images.run import BuildError, check_output

HOST_ALIAS = "ramet-machine"


def make_keys(machine):
    """Makes both keys once. Returns the files the machine must get."""
    for name in ("client_key", "host_key"):
        if not machine.path(name).exists():
            check_output(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", HOST_ALIAS, "-f", machine.path(name)])
    host_public = machine.path("host_key.pub").read_text(encoding="ascii").split()
    machine.path("known_hosts").write_text(f"{HOST_ALIAS} {host_public[0]} {host_public[1]}\n", encoding="ascii")
    check_output(["dropbearconvert", "openssh", "dropbear", machine.path("host_key"), machine.path("host_key.dropbear")])
    return {
        "root/.ssh/authorized_keys": (machine.path("client_key.pub").read_bytes(), 0o600),
        "etc/dropbear/host_key": (machine.path("host_key.dropbear").read_bytes(), 0o600),
    }


def ssh_argv(machine, document, options=()):
    if document["kind"] != "emulated":
        raise BuildError("this machine runs natively on this computer's KVM: run the command here")
    return ["ssh", "-F", "none", "-p", str(document["ssh_port"]), "-i", str(machine.path("client_key")),
            "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={machine.path('known_hosts')}",
            "-o", f"HostKeyAlias={HOST_ALIAS}", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR",
            "-o", "ConnectTimeout=30", *options, "root@127.0.0.1"]


def run_command(machine, document, argv, **kwargs):
    """subprocess.run of argv inside the machine. Standard input is closed unless given."""
    if "input" not in kwargs:
        kwargs.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([*ssh_argv(machine, document), shlex.join(argv)], check=False, **kwargs)


def put(machine, document, local, remote):
    """Copies a file in, keeping its mode; for a program also the shared libraries the machine lacks."""
    local = pathlib.Path(local)
    if not local.is_file():
        raise BuildError(f"{local} is not a file")
    listing = run_command(machine, document, ["find", "/lib", "/lib64", "-name", "*.so*"], stdout=subprocess.PIPE)
    there = set(listing.stdout.decode().split())
    for library in [name for name in libraries(local) if name not in there]:
        _send(machine, document, pathlib.Path(library), library)
    _send(machine, document, local, remote)


def _send(machine, document, local, remote):
    mode = f"{local.stat().st_mode & 0o777:o}"
    target = shlex.quote(remote)
    part = shlex.quote(remote + ".part")
    script = f"mkdir -p $(dirname {target}) && cat > {part} && chmod {mode} {part} && mv {part} {target}"
    with open(local, "rb") as file:
        done = run_command(machine, document, ["sh", "-c", script], stdin=file, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise BuildError(f"cannot write {remote} in the machine: {done.stderr.decode(errors='replace').strip()}")


def get(machine, document, remote, local):
    with open(local, "wb") as file:
        done = run_command(machine, document, ["cat", remote], stdout=file, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise BuildError(f"cannot read {remote} in the machine: {done.stderr.decode(errors='replace').strip()}")
