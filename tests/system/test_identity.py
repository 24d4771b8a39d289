"""No two branches of a fork are the same machine to the outside: names, random numbers, time."""

import calendar
import json
import time

import pytest

from client import deleting
from effort import effort

FORKS = effort("IDENTITY_FORKS", full=50, short=6)
TIMER_FORKS = effort("TIMER_FORKS", full=50, short=8)
STANDSTILL_SECONDS = effort("STANDSTILL_SECONDS", full=300, short=20)
GENERATION_LINE = "sudo dmesg | grep -c 'crng reseeded due to virtual machine fork' || true"

# Draws 128-bit numbers without pause, one process per CPU, each with the time before and after. A number that two branches share was
# drawn before the fork exactly if its times are equal, too: after it the clocks of two branches never show the same nanosecond.
DRAWER = """
import os, sys, time
cpu = int(sys.argv[1])
os.sched_setaffinity(0, {cpu})
log = os.open(f"/dev/shm/drawn.{cpu}", os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_WRONLY, 0o644)
now = time.monotonic_ns
while True:
    before = now()
    drawn = os.getrandom(16)
    after = now()
    os.write(log, before.to_bytes(8, "little") + after.to_bytes(8, "little") + drawn)
"""


def test_ten_children_of_one_fork_differ_in_all_that_must_be_unique(sandbox):
    question = (
        "head -c 16 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'; echo; uuidgen; "
        "python3 -c 'import random; print(random.getrandbits(128))'; hostname; cat /etc/machine-id; cat /proc/sys/kernel/random/uuid"
    )
    children, _ = sandbox.fork(10)
    with deleting(children):
        answers = [one.run(question).split("\n") for one in [sandbox, *children]]
        for line, what in enumerate(["urandom", "uuidgen", "random of a new Python", "host name", "machine id", "kernel uuid"]):
            drawn = [answer[line] for answer in answers]
            assert len(set(drawn)) == len(drawn), f"{what}: {drawn}"


def test_each_child_sees_a_new_generation_and_the_parent_none(sandbox):
    before = int(sandbox.run(GENERATION_LINE))
    [child], _ = sandbox.fork(1)
    [grandchild], _ = child.fork(1)
    with deleting([child, grandchild]):
        seen = [int(one.run(GENERATION_LINE)) - before for one in [sandbox, child, grandchild]]
    assert seen == [0, 1, 2]


def drawn_bytes(sandbox):
    """Of each log, in whole entries. The logs grow without pause."""
    sizes = sandbox.run("stat -c %s /dev/shm/drawn.0 /dev/shm/drawn.1").split()
    return [int(size) // 32 * 32 for size in sizes]


def draws(sandbox, begins):
    """{number: (before, after)} of what was drawn from there until now."""
    found = {}
    for cpu, (begin, end) in enumerate(zip(begins, drawn_bytes(sandbox))):
        data = sandbox.read(f"/dev/shm/drawn.{cpu}", offset=begin, length=end - begin)
        for at in range(0, len(data), 32):
            found[data[at + 16 : at + 32]] = (data[at : at + 8], data[at + 8 : at + 16])
    return found


def test_no_number_drawn_after_the_freeze_occurs_in_two_branches(api):
    with api.create(vcpus=2) as sandbox:
        sandbox.write("/home/user/drawer.py", DRAWER.encode())
        for cpu in range(2):
            sandbox.start(f"exec python3 /home/user/drawer.py {cpu}")
        sandbox.wait_for("test -s /dev/shm/drawn.0 -a -s /dev/shm/drawn.1")
        after_fork = 0
        for _ in range(FORKS):
            begins = drawn_bytes(sandbox)
            for cpu, begin in enumerate(begins):  # makes room: the file system is as small as the guest's memory
                if begin > 0:
                    sandbox.run(f"fallocate --punch-hole --offset 0 --length {begin} /dev/shm/drawn.{cpu}")
            [child], _ = sandbox.fork(1)
            with deleting([child]):
                time.sleep(0.2)
                ours, theirs = draws(sandbox, begins), draws(child, begins)
            common = ours.keys() & theirs.keys()
            assert common, "nothing was drawn before the fork: the test shows nothing"
            later = [number for number in common if ours[number][0] != theirs[number][0]]
            assert not later, f"{len(later)} numbers drawn after the freeze occur in two branches"
            # Drawn around the freeze: begun before it, and at most one per process.
            assert sum(ours[number][1] != theirs[number][1] for number in common) <= 2
            after_fork += len(theirs.keys() - ours.keys())
        assert after_fork > FORKS, "the children drew nothing: the test shows nothing"


def test_date_is_right_after_a_standstill_and_in_a_fork_behind_it(sandbox, on_host):
    """The whole monitor stops, as on a suspended laptop."""
    pid = monitor_of(sandbox, on_host)
    on_host("kill", "-STOP", pid)
    try:
        time.sleep(STANDSTILL_SECONDS)
    finally:
        on_host("kill", "-CONT", pid)
    [child], _ = sandbox.fork(1)
    with deleting([child]):
        for one in [child, sandbox]:
            assert abs(clock_error(one, on_host)) < 1


def monitor_of(sandbox, on_host):
    script = f"for p in $(cat $(find /sys/fs/cgroup -type d -name '*{sandbox.id}*' | sed 's|$|/cgroup.procs|')); do cat /proc/$p/comm | grep -q ramet-vmm && echo $p; done"
    pids = on_host("sh", "-c", script).split()
    if len(pids) != 1:
        pytest.skip(f"the cgroup of {sandbox.id} holds {pids}, not one monitor")
    return pids[0]


def clock_error(sandbox, on_host):
    """Guest minus the machine that runs rametd, in seconds, with the time of the requests taken out. Not minus this computer: the clock
    of an emulated host wanders."""
    began = host_clock(on_host)
    there = float(sandbox.run("date +%s.%N"))
    ended = host_clock(on_host)
    return 0 if began <= there <= ended else min(there - began, there - ended, key=abs)


def host_clock(on_host):
    # busybox's date knows no fractions; the time of a fresh file does.
    day, clock = on_host("sh", "-c", "f=/tmp/now.$$; touch $f; TZ=UTC stat -c %y $f; rm $f").split()[:2]
    whole, fraction = clock.split(".")
    return calendar.timegm(time.strptime(f"{day} {whole}", "%Y-%m-%d %H:%M:%S")) + float(f"0.{fraction}")


def test_clock_source_and_timers_survive_many_forks(sandbox):
    assert sandbox.run("cat /sys/devices/system/clocksource/clocksource0/current_clocksource") == "kvm-clock"
    timer = "import time; a = time.monotonic(); time.sleep(1); print(time.monotonic() - a)"
    for round_number in range(TIMER_FORKS):
        sandbox.start(f"python3 -c '{timer}' > slept.new && mv slept.new slept.{round_number}")
        sandbox.wait_for("pgrep -f time.sleep")
        [child], _ = sandbox.fork(1)
        with deleting([child]):
            for one in [sandbox, child]:
                slept = float(one.wait_for(f"cat slept.{round_number} 2>/dev/null", seconds=30))
                assert 1 <= slept < 10, f"fork {round_number}: a sleep of 1 s took {slept} s"
            state = child.run("cat /sys/devices/system/clocksource/clocksource0/current_clocksource; sudo dmesg | grep -ciE 'skew|unstable' || true")
            assert state.split() == ["kvm-clock", "0"], f"fork {round_number}"
    assert sandbox.run("sudo dmesg | grep -ciE 'skew|unstable' || true") == "0"


def test_identity_is_in_the_environment_of_new_commands(sandbox):
    children, _ = sandbox.fork(2)
    with deleting(children):
        for one in [sandbox, *children]:
            document = json.loads(one.run("python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'"))
            assert document.get("RAMET_SANDBOX_ID") == one.id
