"""Memory that the guest frees goes back to the host (free page reporting), and only where the guest can bear it."""

import time

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


def wait_until(condition, otherwise, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(1)
