"""Who dies takes nobody along: monitors, families' first machines, and the daemon at every step of create, fork and delete."""

import contextlib
import os
import time

import pytest
from client import ApiError, Sandbox, deleting

MIB = 1 << 20
# Steps of src/host/crash_point.cc that a create, a fork and a delete pass when the template is booted. The steps of a boot are
# walked with tiny guests by host_vm_test: each would cost a boot of Debian here.
STEPS = [
    "create.journalled", "create.files", "create.requested", "create.committed", "create.identified", "create.running",
    "fork.journalled", "fork.files", "fork.frozen", "fork.forked", "fork.chain", "fork.committed", "fork.identified", "fork.running",
    "remove.marked", "remove.killed", "remove.files", "remove.row",
]


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.2)


def state_of(api, sandbox):
    try:
        return api.call("GET", sandbox.path)["state"]
    except ApiError as error:
        return "gone" if error.status == 404 else error.code


def monitor_pid(on_host, sandbox):
    """The process in the sandbox's control group, where it is brought after the answer to its creation."""
    def members():
        return on_host("sh", "-c", f"cat /sys/fs/cgroup/ramet.slice/*/*/{sandbox.id}/cgroup.procs").split()

    wait_until(members, 20, f"the monitor of {sandbox.id} in its own control group")
    return members()[0]


def set_crash_point(on_host, step):
    """For the next rametd. Empty, not absent: what starts it keeps variables from one to the next."""
    on_host("sh", "-c", f"echo RAMET_CRASH_AT={step} > /run/rametd.env")


@pytest.fixture
def restart_daemon(api, on_host):
    """Kills rametd with SIGKILL; the next one dies at the given step."""
    if os.environ.get("RAMET_MACHINE_KIND") == "native":
        pytest.skip("only the emulated host starts a killed rametd again")

    def restart(crash_at=""):
        set_crash_point(on_host, crash_at)
        old = on_host("pidof", "rametd").strip()
        on_host("kill", "-9", old)
        wait_until(lambda: on_host("pidof", "rametd", check=False).strip() not in ("", old) and api.healthy(), 60, "a new rametd")

    yield restart
    restart()


def leftovers(on_host):
    """Everything of sandboxes that lies around on the host, by name; template boots and zygotes apart."""
    listing = on_host("sh", "-c", "cd /var/lib/ramet && ls machines overlays /run/ramet/vm; ls -d /sys/fs/cgroup/ramet.slice/*/*/ | xargs -n1 basename")
    return sorted(word for word in listing.split() if word.startswith("sb-"))


def test_a_killed_monitor_ends_its_sandbox_only(api, on_host):
    family = api.create()
    children, _ = family.fork(2)
    with deleting([family, *children]):
        wait_until(lambda: on_host("sh", "-c", f"ls /sys/fs/cgroup/ramet.slice/*/{family.id}").count(children[0].id), 20, "its own leaf")
        on_host("kill", "-9", monitor_pid(on_host, family))
        wait_until(lambda: state_of(api, family) == "failed", 20, "noticing it")
        assert api.call("GET", family.path)["state"] == "failed"
        for child in children:
            assert child.run("echo alive") == "alive"
        [grandchild], _ = children[0].fork(1)
        with grandchild:
            assert grandchild.run("echo alive") == "alive"


def test_sandboxes_and_their_commands_outlive_the_daemon(api, restart_daemon):
    parent = api.create(labels={"who": "parent"}, ttl_seconds=3600)
    children, _ = parent.fork(1)
    with deleting([parent, *children]):
        pid = parent.start("for i in $(seq 400); do echo line $i; sleep 0.1; done; exec sleep 1000")
        before = {s["id"]: s for s in api.list()}
        restart_daemon()
        after = {s["id"]: s for s in api.list()}
        assert after == before
        events = parent.attach(pid)
        assert any("line" in event.get("data", "") for event in events)
        [again], _ = parent.fork(1)
        with again:
            assert again.run(f"test -d /proc/{pid} && echo there") == "there"
        assert children[0].run("echo alive") == "alive"


def test_time_runs_out_also_while_the_daemon_is_down(api, on_host, restart_daemon):
    del restart_daemon  # only for its clean-up and its skip
    sandbox = api.create()
    with sandbox:
        api.call("PATCH", sandbox.path, {"ttl_seconds": 3})
        on_host("sh", "-c", "touch /run/rametd.hold; kill -9 $(pidof rametd)")
        time.sleep(4)
        on_host("rm", "/run/rametd.hold")
        wait_until(lambda: api.healthy(), 60, "a new rametd")
        wait_until(lambda: state_of(api, sandbox) == "gone", 10, "its end")


def try_everything(api, bystander):
    """Create, fork, delete; the daemon dies somewhere on the way."""
    with contextlib.suppress(OSError, ApiError, ValueError, KeyError):
        made = api.call("POST", "/v1/sandboxes", {"template": "base", "ttl_seconds": 600}, timeout=120)
        [child, _], _ = bystander.fork(2)
        api.call("DELETE", child.path, timeout=60)
        api.call("DELETE", f"/v1/sandboxes/{made['id']}", timeout=60)


def test_the_daemon_may_die_at_every_step(api, on_host, restart_daemon):
    with api.create() as bystander:
        pid = bystander.start("exec sleep 100000")
        earlier = {document["id"] for document in api.list()}
        lying_around = set(leftovers(on_host))
        monitors = on_host("pidof", "ramet-vmm").split()
        for step in STEPS:
            restart_daemon(step)
            old = on_host("pidof", "rametd").strip()
            set_crash_point(on_host, "")
            try_everything(api, bystander)
            wait_until(lambda: on_host("pidof", "rametd", check=False).strip() not in ("", old), 60, f"the death at {step}")
            wait_until(lambda: api.healthy(), 60, "a new rametd")
            assert bystander.run(f"test -d /proc/{pid} && echo there") == "there", step
            for document in api.list():
                if document["id"] in earlier:
                    continue
                assert document["state"] == "running", (step, document)
                one = Sandbox(api, document)
                assert one.run("echo usable") == "usable", step
                one.delete()
            wait_until(lambda: set(leftovers(on_host)) <= lying_around, 20, f"a clean host after {step}")
            wait_until(lambda: len(on_host("pidof", "ramet-vmm").split()) == len(monitors), 20, f"no other monitors after {step}")


def test_a_parent_at_its_limit_lives_while_its_family_has_room(api, on_host):
    """It rewrites all it has after every fork, so each child keeps a full copy; without room for one more the fork is refused."""
    block, room = 24 * MIB, 200 * MIB  # room for the copies of a few forks, not of ten
    hold = ("import signal, time\n"
            f"block = bytearray({block})\n"
            "def fill(*_):\n"
            "    for i in range(0, len(block), 4096): block[i] = (block[i] + 1) % 256\n"
            "    with open('/home/user/filled', 'a') as f: f.write('x')\n"
            "signal.signal(signal.SIGUSR1, fill)\n"
            "fill()\n"
            "while True: time.sleep(1)\n")
    parent = api.create()
    children, refused = [], None
    with deleting(children), deleting([parent]):
        parent.write("/home/user/hold.py", hold.encode(), mode="0644")
        pid = parent.start("exec python3 /home/user/hold.py", user="user")
        parent.wait_for("test -s /home/user/filled", seconds=120)
        family = on_host("sh", "-c", f"echo /sys/fs/cgroup/ramet.slice/*/{parent.id}").strip()
        on_host("sh", "-c", f"echo $(($(cat {family}/memory.current) + {room})) > {family}/memory.max")
        for rounds in range(2, 12):
            try:
                made, _ = parent.fork(1)
            except ApiError as error:
                refused = error
                break
            children += made
            parent.run(f"kill -USR1 {pid}", user="user")
            parent.wait_for(f"test $(wc -c < /home/user/filled) -ge {rounds}", seconds=180)
            assert "oom_kill 0" in on_host("cat", f"{family}/memory.events")
        for one in [parent, *children]:
            assert one.run(f"test -d /proc/{pid} && echo there") == "there"
        assert len(children) >= 2
        assert refused is not None, f"{len(children)} forks in {room // MIB} MiB"
        assert refused.code == "no_memory" and "family" in str(refused), refused
