"""Snapshots, pause and resume of real Debian guests: what was running goes on, here and in every copy."""

import time

import pytest
from client import ApiError, Sandbox, deleting
from effort import effort
from test_fork import counters, start_counter

SLOW = 600  # the first snapshot of a template stores its whole machine, which an emulated processor hashes slowly
ROUNDS = effort("PAUSE_ROUNDS", full=100, short=3)

# A warm structure of 100 MiB, an open file, a running timer.
WARM = """
import hashlib, os, signal, sys
warm = {i: bytes([i % 251]) * 100_000 for i in range(1000)}
log = os.open('/home/user/ticks', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
signal.signal(signal.SIGALRM, lambda *_: os.write(log, b't'))
signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
print('ready', flush=True)
for line in sys.stdin:
    print(hashlib.sha256(b''.join(warm.values())).hexdigest(), flush=True)
"""


def snapshot(sandbox, **fields):
    return sandbox.client.call("POST", f"{sandbox.path}/snapshots", fields, timeout=SLOW)


@pytest.fixture
def kept(api):
    """Snapshots that are made in a test end with it."""
    yield
    for one in api.call("GET", "/v1/snapshots")["snapshots"]:
        api.call("DELETE", f"/v1/snapshots/{one['id']}")


def from_snapshot(api, name):
    return Sandbox(api, api.call("POST", "/v1/sandboxes", {"snapshot": name}, timeout=SLOW))


def pause(sandbox):
    document = sandbox.client.call("POST", f"{sandbox.path}/pause", timeout=SLOW)
    assert document["state"] == "paused"
    return document


def resume(sandbox):
    document = sandbox.client.call("POST", f"{sandbox.path}/resume", timeout=SLOW)
    assert document["state"] == "running"
    return document


def digest(sandbox, pid):
    sandbox.client.call("POST", f"{sandbox.path}/processes/{pid}/stdin", b"again\n")
    sandbox.wait_for("test -s digest")
    text = sandbox.run("tail -n 1 digest")
    sandbox.run(": > digest")
    return text


@pytest.mark.usefixtures("kept")
def test_a_warm_program_goes_on_in_the_sandbox_and_in_a_copy(api, sandbox):
    sandbox.run("mkdir -p demo")
    start_counter(sandbox)
    sandbox.write("/home/user/warm.py", WARM.encode(), mode="0644")
    pid = sandbox.start("exec python3 warm.py >> digest", stdin_open=True)
    sandbox.wait_for("grep -q ready digest")
    sandbox.run(": > digest")
    before = digest(sandbox, pid)
    taken = snapshot(sandbox, name="warm")
    assert taken["snapshot"]["strict"] and taken["changed_pages"] > 0
    assert digest(sandbox, pid) == before
    with from_snapshot(api, "warm") as copy:
        assert copy.id != sandbox.id
        for one in (sandbox, copy):
            in_ram, in_file = counters(one)
            assert in_ram == in_file
            ticks = int(one.run("wc -c < ticks"))
            one.wait_for(f"test $(wc -c < ticks) -gt {ticks + 2}")
            assert digest(one, pid) == before
        drawn = [one.run("cat /etc/machine-id; hostname; head -c 16 /dev/urandom | od -An -tx1") for one in (sandbox, copy)]
        assert drawn[0] != drawn[1] and copy.id in drawn[1]


@pytest.mark.usefixtures("kept")
def test_the_second_snapshot_of_an_idle_guest_is_small(api, sandbox):
    first = snapshot(sandbox)
    with from_snapshot(api, first["snapshot"]["id"]) as copy:
        second = snapshot(copy)
        assert second["changed_pages"] * 4096 < 8 << 20
        with from_snapshot(api, second["snapshot"]["id"]) as again:
            assert again.run("echo here") == "here"


def test_counters_agree_through_pauses(sandbox):
    sandbox.run("mkdir -p demo")
    start_counter(sandbox)
    for _ in range(ROUNDS):
        pause(sandbox)
        resume(sandbox)
        in_ram, in_file = counters(sandbox)
        assert in_ram == in_file


def test_a_paused_sandbox_has_no_process_and_any_command_wakes_it(api, sandbox, on_host):
    sandbox.run("echo before > both; sync; echo warm > /dev/shm/state")
    pid = sandbox.start("exec sleep 1000")
    pause(sandbox)
    assert sandbox.get()["state"] == "paused" and sandbox.get()["expires_at"] is None
    assert on_host("sh", "-c", f"pgrep -f {sandbox.id} | grep -v $$ || true").strip() == ""
    with pytest.raises(ApiError) as refused:
        api.call("POST", f"{sandbox.path}/pause")
    assert (refused.value.status, refused.value.code) == (409, "conflict")
    assert sandbox.run("cat both /dev/shm/state; pgrep -x sleep").split() == ["before", "warm", str(pid)]
    assert sandbox.get()["state"] == "running"


def wait_until_paused(sandbox, seconds=SLOW):
    end = time.monotonic() + seconds
    while sandbox.get()["state"] != "paused":
        assert time.monotonic() < end, "it does not pause by itself"
        time.sleep(0.2)


def test_an_idle_sandbox_pauses_by_itself_and_a_command_wakes_it(api):
    with api.create(idle_seconds=4) as sandbox:
        sandbox.run("echo warm > /dev/shm/state")
        wait_until_paused(sandbox)
        assert sandbox.run("cat /dev/shm/state") == "warm"
        sandbox.run("sleep 8; echo of-a-stream")  # it would have paused half-way
        assert sandbox.get()["state"] == "running"
        sandbox.start("exec sleep 8")
        start = time.monotonic()
        wait_until_paused(sandbox)
        assert time.monotonic() - start > 8, "a command that nobody is attached to runs as well"
        assert sandbox.run("cat /dev/shm/state; pgrep -x sleep || echo ended").split() == ["warm", "ended"]


@pytest.mark.usefixtures("kept")
def test_a_rollback_brings_memory_processes_and_disk_back(sandbox):
    sandbox.run("echo before | tee both > /dev/shm/state; sync")
    pid = sandbox.start("exec sleep 1000")
    snapshot(sandbox, name="before")
    for paused in (False, True):
        sandbox.run("echo after | tee both > /dev/shm/state; sync; pkill -x sleep; true")
        if paused:
            pause(sandbox)
        document = sandbox.client.call("POST", f"{sandbox.path}/rollback", {"snapshot": "before"}, timeout=SLOW)
        assert (document["id"], document["state"]) == (sandbox.id, "running")
        assert sandbox.run("cat both /dev/shm/state; pgrep -x sleep").split() == ["before", "before", str(pid)]
        assert sandbox.run("hostname") == sandbox.id
        assert "error" not in sandbox.run("sudo dmesg | grep -i ext4 || true").lower()


def test_forks_of_a_paused_sandbox_leave_it_paused(sandbox):
    sandbox.run("echo warm > /dev/shm/state")
    pause(sandbox)
    children, _ = sandbox.fork(2)
    with deleting(children):
        assert sandbox.get()["state"] == "paused"
        ids = {one.run("cat /dev/shm/state; hostname; cat /etc/machine-id") for one in children}
        assert len(ids) == 2 and all(text.startswith("warm") for text in ids)
    resume(sandbox)
    assert sandbox.run("cat /dev/shm/state") == "warm"


def test_clock_is_right_and_the_file_system_clean_after_a_pause(sandbox):
    sandbox.run("dd if=/dev/urandom of=data bs=1M count=20 2>/dev/null; sync; sha256sum data > sum")
    pause(sandbox)
    time.sleep(5)
    resume(sandbox)
    assert abs(float(sandbox.run("date +%s.%N")) - time.time()) < 5
    sandbox.run("sudo sh -c 'echo 3 > /proc/sys/vm/drop_caches'; sha256sum -c --quiet sum")
    assert "error" not in sandbox.run("sudo dmesg | grep -i ext4 || true").lower()


def test_a_paused_sandbox_is_deleted_without_waking(api):
    with api.create() as sandbox:
        pause(sandbox)
        api.call("DELETE", sandbox.path)
        assert sandbox.id not in [one["id"] for one in api.list()]


@pytest.mark.usefixtures("kept")
def test_snapshots_have_names_and_go(api, sandbox):
    made = snapshot(sandbox, name="one", keep_seconds=0, labels={"a": "b"})["snapshot"]
    assert made["expires_at"] is None and made["labels"] == {"a": "b"}
    with pytest.raises(ApiError) as refused:
        snapshot(sandbox, name="one")
    assert refused.value.code == "exists"
    api.call("DELETE", "/v1/snapshots/one")
    with pytest.raises(ApiError) as refused:
        from_snapshot(api, "one")
    assert (refused.value.status, refused.value.code) == (404, "not_found")
