"""What rametd's processes may use of the host it runs on."""

import os

import pytest


@pytest.mark.skipif(os.environ.get("RAMET_MACHINE_KIND") == "native", reason="only the emulated host keeps its first CPU free")
def test_no_monitor_may_run_on_cpu_0_of_the_emulated_host(sandbox, on_host):
    """docs/decisions/0005: a guest on CPU 0 of QEMU's emulator corrupts itself and the host."""
    del sandbox
    lists = on_host("sh", "-c", "for p in $(pidof ramet-vmm); do grep Cpus_allowed_list /proc/$p/task/*/status; done")
    allowed = [line.split()[-1] for line in lists.splitlines()]
    assert len(allowed) >= 2  # a zygote and the sandbox, each with several threads
    assert not any(word.startswith("0") for word in allowed), lists
