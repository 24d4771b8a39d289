"""Streams over vsock: across forks, through many forks of forks, for large files, against a guest that floods."""

import concurrent.futures
import hashlib
import json
import random
import re
import threading
import time

import pytest

from client import deleting
from effort import effort

BIG_FILE_MIB = effort("BIG_FILE_MIB", full=1024, short=32)
GENERATIONS = effort("VSOCK_GENERATIONS", full=100, short=25)
MIB = 1 << 20


def lines(count):
    return "".join(f"line {i}\n" for i in range(1, count + 1))


def test_the_parents_stream_is_unbroken_and_the_childs_output_can_be_attached_to(sandbox):
    count = 40
    body = {"command": f"for i in $(seq {count}); do echo line $i; sleep 0.25; done", "stream": True}
    events, started = [], threading.Event()

    def follow():
        with sandbox.client.stream("POST", f"{sandbox.path}/exec", body) as answer:
            for line in answer:
                events.append(json.loads(line))
                started.set()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        following = pool.submit(follow)
        assert started.wait(60)
        time.sleep(1)
        children, _ = sandbox.fork(2)
        with deleting(children):
            pid = events[0]["pid"]
            attached = [pool.submit(lambda child: list(child.attach(pid)), child) for child in children]
            following.result()
            for seen in [events, *(future.result() for future in attached)]:
                assert "".join(event["data"] for event in seen if event["type"] == "stdout") == lines(count)
                assert seen[-1]["type"] == "exit" and seen[-1]["exit_code"] == 0


def test_stdin_goes_on_in_both_branches(sandbox):
    pid = sandbox.start("cat > copied; echo done > ended", stdin_open=True)
    put(sandbox, pid, b"before\n")
    [child], _ = sandbox.fork(1)
    with deleting([child]):
        put(sandbox, pid, b"parent\n", eof=1)
        put(child, pid, b"child\n", eof=1)
        for one, word in [(sandbox, "parent"), (child, "child")]:
            one.wait_for("test -s ended")
            assert one.run("cat copied") == f"before\n{word}"


def put(sandbox, pid, data, **query):
    sandbox.client.call("POST", f"{sandbox.path}/processes/{pid}/stdin", data, **query)


def test_works_after_a_fork_of_a_fork_many_times_in_a_row(sandbox):
    youngest, previous = sandbox, None
    try:
        for generation in range(1, GENERATIONS + 1):
            [child], _ = youngest.fork(1)
            if previous is not None:
                previous.delete()
            previous = youngest = child
            assert youngest.run(f"echo {generation} >> generations; tail -n 1 generations") == str(generation)
        assert youngest.run("wc -l < generations") == str(GENERATIONS)
    finally:
        if previous is not None:
            previous.delete()


class Pattern:
    """A file object of reproducible bytes that keeps its own digest."""

    def __init__(self, size):
        self.left = size
        self.block = random.Random(7).randbytes(MIB + 13)  # not a multiple of any chunk
        self.at = 0
        self.digest = hashlib.sha256()

    def read(self, n=-1):
        n = min(self.left, n if n > 0 else 65536, len(self.block) - self.at)
        data = self.block[self.at : self.at + n]
        self.at = (self.at + n) % len(self.block)
        self.left -= n
        self.digest.update(data)
        return data


@pytest.fixture
def own_memory(on_host):
    """Bytes of its own that a process on the host has ever used, guest RAM left out: {pid: bytes} of rametd and all monitors."""

    def measure():
        script = "for p in /proc/[0-9]*; do c=$(cat $p/comm 2>/dev/null); case $c in rametd|ramet-vmm*) echo \"pid ${p#/proc/} $c\"; cat $p/smaps 2>/dev/null;; esac; done"
        return parse_smaps(on_host("sh", "-c", script))

    return measure


def parse_smaps(text):
    """Anonymous bytes per process, mappings of guest RAM (whole multiples of 2 MiB, or of a memory file) not counted."""
    totals, process, counted = {}, None, False
    for line in text.splitlines():
        if line.startswith("pid "):
            process = tuple(line.split()[1:3])
            totals[process] = 0
        elif match := re.match(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+\s*(.*)$", line):
            size = int(match[2], 16) - int(match[1], 16)
            is_ram = size >= 2 * MIB and size % (2 * MIB) == 0 and "[heap]" not in match[3]
            counted = not (is_ram or "memfd" in match[3])
        elif line.startswith("Anonymous:") and counted:
            totals[process] += int(line.split()[1]) * 1024
    return totals


def test_a_large_file_goes_in_and_out_with_bounded_memory_everywhere(sandbox, own_memory):
    size = BIG_FILE_MIB * MIB
    peak, done = {}, threading.Event()

    def watch():
        while not done.wait(2):
            for process, used in own_memory().items():
                peak[process] = max(peak.get(process, 0), used)

    before = own_memory()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        watching = pool.submit(watch)
        try:
            sent = Pattern(size)
            began = time.monotonic()
            sandbox.client.call("PUT", f"{sandbox.path}/files", sent, path="/home/user/big", timeout=3600)
            upload_seconds = time.monotonic() - began
            inside = sandbox.client.call("POST", f"{sandbox.path}/exec", {"command": "sha256sum /home/user/big"}, timeout=3600)["stdout"].split()[0]
            back = hashlib.sha256()
            began = time.monotonic()
            with sandbox.client.stream("GET", f"{sandbox.path}/files", path="/home/user/big", timeout=3600) as answer:
                while data := answer.read(MIB):
                    back.update(data)
            download_seconds = time.monotonic() - began
        finally:
            done.set()
        watching.result()
    print(f"{BIG_FILE_MIB} MiB: in {upload_seconds:.1f} s, out {download_seconds:.1f} s")
    assert inside == back.hexdigest() == sent.digest.hexdigest()
    for process, used in peak.items():
        assert used - before.get(process, 0) < 64 * MIB, f"{process} used {used / MIB:.0f} MiB beside guest RAM"
    agent = int(sandbox.run("sudo grep VmHWM /proc/1/status").split()[1]) * 1024
    assert agent < 64 * MIB, f"the agent used {agent / MIB:.0f} MiB"


FLOOD = """
import socket
refused = 0
for i in range(500):
    s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    try:
        s.connect((2, 1024 + i))
    except OSError:
        refused += 1
    s.close()
print(refused)
"""


def test_a_guest_that_floods_the_host_with_connects_is_refused_and_stays_usable(sandbox):
    sandbox.write("/home/user/flood.py", FLOOD.encode())
    assert sandbox.run("python3 /home/user/flood.py") == "500"
    assert sandbox.run("echo usable") == "usable"


def test_a_client_that_does_not_read_holds_the_command_and_nobody_else(sandbox):
    body = {"command": "head -c 200000000 /dev/zero | tr '\\0' x; echo end", "stream": True}
    with sandbox.client.stream("POST", f"{sandbox.path}/exec", body) as answer:
        answer.readline()
        for _ in range(5):
            assert sandbox.run("echo others go on") == "others go on"
    sandbox.wait_for("! pgrep -x head")
