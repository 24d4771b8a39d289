"""Memory that the guest frees goes back to the host (free page reporting), and only where the guest can bear it."""

import json
import os
import pathlib
import subprocess
import time

import pytest

from client import deleting

USE = "python3 -c 'a = bytearray(200 << 20); [a.__setitem__(i, 1) for i in range(0, len(a), 4096)]; input()'"
REPORTING_BIT = 5  # VIRTIO_BALLOON_F_REPORTING
FEATURES = "cat /sys/bus/virtio/drivers/virtio_balloon/virtio*/features"


def diverged(sandbox):
    [node] = [node for node in all_nodes(sandbox.client.call("GET", "/v1/tree")["roots"]) if node["id"] == sandbox.id]
    return node["ram_diverged_bytes"]


def all_nodes(nodes):
    for node in nodes:
        yield node
        yield from all_nodes(node["children"])


def test_freed_memory_goes_back_to_the_host(sandbox):
    assert sandbox.run(FEATURES)[REPORTING_BIT] == "1"
    before = diverged(sandbox)
    pid = sandbox.start(USE, stdin_open=True)
    wait_until(lambda: diverged(sandbox) - before > 180 << 20, "the guest used 200 MiB and nobody saw it")
    sandbox.client.call("POST", f"{sandbox.path}/processes/{pid}/stdin", b"\n", eof=1)
    wait_until(lambda: diverged(sandbox) - before < 100 << 20, "the guest freed 200 MiB and the host still holds half of it")


# Fills memory, frees it, waits until it would have been reported, and wants zeros in the next memory it gets. A guest that clears
# pages when they are freed does not clear them again when they are handed out, so it would see whatever the host put there.
FILL_AND_LOOK = """
import mmap, time
size, piece = 96 << 20, 1 << 20
for round_number in range(2):
    used = mmap.mmap(-1, size)
    for at in range(0, size, piece):
        used[at:at + piece] = b"\\xaa" * piece
    used.close()
    time.sleep(4)
    fresh = mmap.mmap(-1, size)
    dirty = sum(fresh[at:at + piece].count(0) != piece for at in range(0, size, piece))
    fresh.close()
    assert dirty == 0, f"round {round_number}: {dirty} MiB were not clean"
print("clean")
"""


@pytest.fixture
def clears_on_free(api, tmp_path):
    """The template `base`, booted with init_on_free=1."""
    built = pathlib.Path(os.environ.get("RAMET_STATE", "/nowhere")) / "built" / "base"
    if not (built / "template.json").exists():
        pytest.skip(f"no template directory {built}: run `ramet template build base` with this RAMET_STATE")
    manifest = json.loads((built / "template.json").read_text())
    name = "base-init-on-free"
    (tmp_path / "template.json").write_text(json.dumps({**manifest, "name": name, "cmdline": f"{manifest['cmdline']} init_on_free=1".strip()}))
    for file in manifest["files"]:
        (tmp_path / file).symlink_to((built / file).resolve())
    subprocess.run(["ramet", "template", "push", str(tmp_path)], check=True)
    yield name
    api.call("DELETE", f"/v1/templates/{name}")


def test_a_guest_that_clears_on_free_turns_reporting_off_and_is_unharmed(api, clears_on_free):
    with api.create(template=clears_on_free) as sandbox:
        assert "init_on_free=1" in sandbox.run("cat /proc/cmdline")
        assert sandbox.run(FEATURES)[REPORTING_BIT] == "0"
        sandbox.write("/home/user/look.py", FILL_AND_LOOK.encode())
        [child], _ = sandbox.fork(1)
        with deleting([child]):
            for one in [sandbox, child]:
                assert one.run("python3 /home/user/look.py") == "clean"


def test_a_guest_whose_memory_came_and_went_still_gets_clean_memory(sandbox):
    sandbox.write("/home/user/look.py", FILL_AND_LOOK.encode())
    assert sandbox.run("python3 /home/user/look.py") == "clean"


def wait_until(condition, otherwise, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(1)
