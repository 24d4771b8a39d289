"""The disk of a branch: what was written stays, what was synced survives a killed monitor, what was discarded is given back, and
nobody can write to what other branches share."""

import os
import pathlib
import subprocess
import threading
import time

import pytest
from client import ApiError, deleting
from effort import effort

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FIO_MIB = effort("DISK_FIO_MIB", 64, 8)
LOAD_SECONDS = effort("DISK_LOAD_SECONDS", 60, 15)

# pid -> lines "path flags" of its open overlay files, in the order they were opened.
OPEN_FILES = """
for fd in $(ls /proc/$1/fd | sort -n); do
  path=$(readlink /proc/$1/fd/$fd)
  case $path in */overlays/*) echo "$path $(sed -n 's/^flags:[[:space:]]*//p' /proc/$1/fdinfo/$fd)";; esac
done
"""


def upload(sandbox):
    sandbox.write("/home/user/disk_guest.py", (HERE / "disk_guest.py").read_bytes())


def monitor_of(sandbox, on_host):
    script = (f"for p in $(cat $(find /sys/fs/cgroup -type d -name '*{sandbox.id}*' | sed 's|$|/cgroup.procs|')); do "
              "grep -q ramet-vmm /proc/$p/comm && echo $p; done")
    pids = on_host("sh", "-c", script).split()
    end = time.monotonic() + 20
    while len(pids) != 1 and time.monotonic() < end:  # it may still stand in its parent's
        time.sleep(0.5)
        pids = on_host("sh", "-c", script).split()
    if len(pids) != 1:
        pytest.skip(f"the cgroup of {sandbox.id} holds {pids}, not one monitor")
    return pids[0]


def open_files(pid, on_host):
    """[(path, open for writing)]"""
    lines = on_host("sh", "-c", OPEN_FILES, "sh", pid).splitlines()
    return [(path, int(flags, 8) & os.O_ACCMODE != os.O_RDONLY) for path, flags in (line.rsplit(" ", 1) for line in lines)]


def fio(sandbox, seed, *more):
    """Random 4 KiB writes past the page cache, each with a checksum; with --verify_only they are read and checked instead."""
    return sandbox.run(["fio", "--name=verify", "--filename=/home/user/data", f"--size={FIO_MIB}m", "--bs=4k", "--rw=randwrite", "--direct=1",
                        "--ioengine=psync", "--verify=crc32c", "--verify_fatal=1", "--do_verify=0", "--verify_state_save=0", f"--randseed={seed}",
                        "--end_fsync=1", "--output-format=terse", *more], timeout_seconds=900)


def test_fio_verifies_before_and_after_a_fork_in_all_branches(sandbox):
    fio(sandbox, 1)
    children, _ = sandbox.fork(2)
    with deleting(children):
        branches = [sandbox, *children]
        for one in branches:
            fio(one, 1, "--verify_only")
        for seed, one in enumerate(branches, start=2):
            fio(one, seed)
        for seed, one in enumerate(branches, start=2):
            fio(one, seed, "--verify_only")


def test_a_fork_in_the_middle_of_heavy_writes_and_syncs_keeps_both_sides_whole(sandbox):
    upload(sandbox)
    sandbox.start("exec python3 disk_guest.py load > log")
    sandbox.wait_for("test $(wc -l < log) -gt 5")
    children, _ = sandbox.fork(2)
    with deleting(children):
        for one in [sandbox, *children]:
            before = int(one.run("wc -l < log"))
            one.wait_for(f"test $(wc -l < log) -gt {before + 5}")  # it goes on
            one.run("pkill -f '[d]isk_guest.py'; sleep 0.3; sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'")
            one.run("grep -v deleted log | while read name sum; do test ! -e $name || echo $sum $name; done | sha256sum -c --quiet")
            assert one.run("sudo dmesg | grep -ciE 'ext4.*error|i/o error' || true") == "0"


def test_what_was_synced_survives_a_killed_monitor(api, on_host):
    if os.environ.get("RAMET_MACHINE_KIND") == "native":
        pytest.skip("copies of overlays are made in the emulated host only")
    with api.create() as sandbox:
        upload(sandbox)
        pid = monitor_of(sandbox, on_host)
        synced = {}
        command = sandbox.start("exec python3 disk_guest.py load")

        def listen():
            try:
                text = ""
                for event in sandbox.attach(command):
                    text += event.get("data", "") if event["type"] == "stdout" else ""
                    *lines, text = text.split("\n")
                    for line in lines:
                        name, digest = line.split()
                        synced[name] = digest
            except (ApiError, OSError, ValueError):
                pass  # the sandbox is gone

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        time.sleep(LOAD_SECONDS)
        files = open_files(pid, on_host)
        [writable] = {path.removesuffix(".data") for path, writes in files if writes and path.endswith(".data")}
        frozen = [path.removesuffix(".data") for path, _ in files if path.endswith(".data") and path != writable + ".data"]
        frozen = list(dict.fromkeys(frozen))
        assert len(frozen) <= 1, f"only a chain of one has an order that descriptors show: {frozen}"
        # A second name keeps the files when the daemon deletes what the dead sandbox had.
        keep = f"{writable}-test-copy"
        on_host("sh", "-c", f"ln {writable}.data {keep}.data && ln {writable}.log {keep}.log && kill -9 {pid}")
        listener.join(60)
        settled = dict(synced)
    assert len(settled) > 5, "the guest wrote nothing: the test shows nothing"
    try:
        subprocess.run([ROOT / "machine/machine", "put", ROOT / "build/release/bin/overlay_export", "/run/overlay_export"], check=True)
        overlays = [f"--overlay={one}.data:{one}.log" for one in [*frozen, keep]]
        copy, base = f"{keep}.img", f"{keep}.base"
        [template] = [t for t in api.call("GET", "/v1/templates")["templates"] if t["name"] == "base"]
        disk = f"template:{template['files']['disk.img']['sha256']}"
        on_host("wget", "-q", "-O", base, f"http://127.0.0.1:8080/v1/images/{disk}/content")
        on_host("/run/overlay_export", f"--base={base}", *overlays, f"--out={copy}")
        assert on_host("sh", "-c", f"e2fsck -p {copy} >&2; echo $?").strip() in ("0", "1"), "the journal did not replay cleanly"
        report = on_host("sh", "-c", f"e2fsck -fn {copy}; echo exit $?")
        assert report.endswith("exit 0\n"), report
        lost = []
        assert any(digest != "deleted" for digest in settled.values())
        for name, digest in settled.items():
            script = f"debugfs -R 'dump /home/user/{name} /run/dumped' {copy} 2>/dev/null; sha256sum /run/dumped | cut -c1-64; rm -f /run/dumped"
            found = on_host("sh", "-c", script).strip()
            if digest != "deleted" and found != digest:
                lost.append(name)
        # The line about the next deletion may not have arrived.
        assert len(lost) <= 1, f"{len(lost)} of {len(settled)} synced files are lost: {lost}"
    finally:
        on_host("sh", "-c", f"rm -f {keep}.data {keep}.log {keep}.img {keep}.base", check=False)


def test_discard_gives_space_back(sandbox):
    def own_bytes():
        def find(nodes):
            for node in nodes:
                if node["id"] == sandbox.id:
                    return node
                if found := find(node.get("children", [])):
                    return found
            return None
        return find(sandbox.client.call("GET", "/v1/tree")["roots"])["disk_own_bytes"]

    mib = 1 << 20
    sandbox.run("sudo fstrim / && sync")
    before = own_bytes()
    sandbox.run("head -c 48M /dev/urandom > big && sync")
    grown = own_bytes()
    assert grown >= before + 40 * mib
    sandbox.run("rm big && sync && sudo fstrim / && sync")
    assert own_bytes() <= before + 8 * mib, f"{before} -> {grown} -> {own_bytes()}"


def test_no_monitor_can_write_a_frozen_overlay(sandbox, on_host):
    sandbox.run("echo something > file; sync")
    children, _ = sandbox.fork(3)
    with deleting(children):
        writers = {}
        readers = set()
        for one in [sandbox, *children]:
            for path, writes in open_files(monitor_of(one, on_host), on_host):
                if writes:
                    writers.setdefault(path, []).append(one.id)
                else:
                    readers.add((path, one.id))
        assert all(len(set(ids)) == 1 for ids in writers.values()), f"several monitors write one overlay: {writers}"
        # What one writes no other even reads.
        for path, [owner, *_] in writers.items():
            assert {who for where, who in readers if where == path} <= {owner}, f"{path} of {owner} is open elsewhere"
