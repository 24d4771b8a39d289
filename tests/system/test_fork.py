"""A live fork: both sides are the same machine at one instant, and two machines afterwards."""

import pathlib
import time

from client import deleting
from effort import effort

COUNTER_ROUNDS = effort("COUNTER_ROUNDS", full=50, short=3)  # forks into two
WIDTH = effort("FORK_WIDTH", full=100, short=10)
DEPTH = effort("FORK_DEPTH", full=64, short=5)
COUNTER = pathlib.Path(__file__).resolve().parents[2] / "tools" / "demo_guest"


def start_counter(sandbox):
    for name in ("counter.py", "ask.sh"):
        sandbox.write(f"/home/user/demo/{name}", (COUNTER / name).read_bytes())
    sandbox.start("exec python3 demo/counter.py")
    sandbox.wait_for("test -s count")


def counters(sandbox):
    in_ram, in_file = sandbox.run("sh demo/ask.sh").split()
    return int(in_ram), int(in_file)


def test_ram_and_disk_are_of_one_instant(sandbox):
    sandbox.run("mkdir -p demo")
    start_counter(sandbox)
    for _ in range(COUNTER_ROUNDS):
        children, _ = sandbox.fork(2)
        with deleting(children):
            for one in [sandbox, *children]:
                in_ram, in_file = counters(one)
                assert in_ram == in_file


def test_many_children_of_one_fork_all_run(sandbox):
    sandbox.run("echo warm > /dev/shm/state")
    children, _ = sandbox.fork(WIDTH)
    with deleting(children):
        assert len(children) == WIDTH
        for child in children:
            assert child.run("cat /dev/shm/state; hostname").split() == ["warm", child.id]


# Rewrites its memory without pause and looks whether it still holds what was written.
BUSY = """
block = bytearray(24 << 20)
value = 0
while True:
    value = value % 255 + 1
    for i in range(0, len(block), 4096):
        block[i] = value
    assert all(block[i] == value for i in range(0, len(block), 4096))
    open('/home/user/rounds', 'a').write('x')
"""


def test_branches_of_a_busy_machine_stay_sound(sandbox):
    """Parent and children at work at the same time, so that every page is copied while its machine runs and switches are many."""
    sandbox.run("mkdir -p demo")
    start_counter(sandbox)
    sandbox.write("/home/user/busy.py", BUSY.encode(), mode="0644")
    pid = sandbox.start("exec python3 /home/user/busy.py", user="user")
    sandbox.wait_for("test -s rounds")
    for _ in range(4):
        children, _ = sandbox.fork(2)
        with deleting(children):
            for one in [sandbox, *children]:
                in_ram, in_file = counters(one)
                assert in_ram == in_file
                before = int(one.run("wc -c < rounds"))
                one.wait_for(f"test $(wc -c < rounds) -gt {before + 1}")
                assert one.run(f"test -d /proc/{pid} && echo there") == "there"


def test_parent_goes_on_with_the_same_processes(sandbox):
    pid = sandbox.start("exec sleep 1000")
    children, _ = sandbox.fork(1)
    with deleting(children):
        for one in [sandbox, *children]:
            assert one.run("pgrep -x sleep") == str(pid)


def test_files_of_one_branch_are_invisible_in_the_others(sandbox):
    sandbox.run("echo before > both; sync")
    children, _ = sandbox.fork(2)
    with deleting(children):
        first, second = children
        first.run("echo first > mine; echo changed > both; sync")
        second.run("echo second > mine; sync")
        sandbox.run("echo parent > mine; sync")
        for one in [sandbox, first, second]:
            one.run("sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'")
        assert [one.run("cat mine both") for one in [sandbox, first, second]] == ["parent\nbefore", "first\nchanged", "second\nbefore"]


def test_ram_of_one_branch_is_invisible_in_the_others(sandbox):
    sandbox.run("mkdir /dev/shm/t && echo before > /dev/shm/t/word")
    children, _ = sandbox.fork(1)
    with deleting(children):
        children[0].run("echo child > /dev/shm/t/word")
        assert sandbox.run("cat /dev/shm/t/word") == "before"
        sandbox.run("echo parent > /dev/shm/t/word")
        assert children[0].run("cat /dev/shm/t/word") == "child"


def test_children_draw_different_random_numbers(sandbox):
    children, _ = sandbox.fork(4)
    with deleting(children):
        everyone = [sandbox, *children]
        for command in ["head -c 16 /dev/urandom | xxd -p || head -c 16 /dev/urandom | od -An -tx1", "uuidgen", "cat /etc/machine-id",
                        "python3 -c 'import random; print(random.random())'", "hostname"]:
            drawn = [one.run(command) for one in everyone]
            assert len(set(drawn)) == len(everyone), f"{command}: {drawn}"


def test_clock_and_timers_go_on(sandbox):
    sandbox.start("date +%s.%N > began; sleep 4; date +%s.%N > ended")
    sandbox.wait_for("test -s began")
    children, _ = sandbox.fork(2)
    with deleting(children):
        for one in [sandbox, *children]:
            one.wait_for("test -s ended")
            began, ended = (float(word) for word in one.run("cat began ended").split())
            assert 4 <= ended - began < 8
            assert abs(float(one.run("date +%s.%N")) - time.time()) < 3
            assert one.run("cat /sys/devices/system/clocksource/clocksource0/current_clocksource") == "kvm-clock"
            # Not "unstable" alone: a guest whose host was interrupted while it read the clock says so too, with no skew.
            assert one.run("sudo dmesg | grep -i skew || true") == ""


def test_fork_of_a_fork(sandbox):
    """All of them alive."""
    chain = []
    with deleting(chain):
        youngest = sandbox
        for depth in range(1, DEPTH + 1):
            [child], _ = youngest.fork(1)
            chain.append(child)
            assert child.document["depth"] == youngest.document["depth"] + 1
            child.run(f"echo {depth} >> depths")
            youngest = child
        for depth, one in enumerate(chain, start=1):
            assert one.run("cat depths").split() == [str(d) for d in range(1, depth + 1)]


def test_a_running_exec_goes_on_in_both(sandbox):
    pid = sandbox.start("for i in $(seq 30); do echo line $i; sleep 0.2; done")
    children, _ = sandbox.fork(1)
    with deleting(children):
        for one in [sandbox, *children]:
            text = "".join(event["data"] for event in one.attach(pid) if event["type"] == "stdout")
            assert text == "".join(f"line {i}\n" for i in range(1, 31))


def test_children_outlive_their_parent(api):
    parent = api.create()
    children, _ = parent.fork(1)
    with deleting([parent, *children]):
        parent.delete()
        assert children[0].run("echo alive") == "alive"


def test_tree_shows_who_came_from_whom(api, sandbox):
    children, answer = sandbox.fork(2)
    with deleting(children):
        assert {"fork_ms", "parent_pause_ms", "vcpu_stop_ms", "ready_ms"} <= answer["timing"].keys()
        [root] = [node for node in api.call("GET", "/v1/tree")["roots"] if node["id"] == sandbox.id]
        assert {node["id"] for node in root["children"]} == {child.id for child in children}
        assert root["ram_diverged_bytes"] > 0
