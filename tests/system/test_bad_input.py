"""What users, images and guests get wrong is answered with a clear error or ends one sandbox; the daemon goes on."""

import contextlib
import hashlib
import json
import os
import pathlib
import time

import pytest
from client import ApiError

TEMPLATE = pathlib.Path(os.environ.get("RAMET_TEMPLATE_DIR", "/nonexistent"))
DISK_BYTES = 1 << 20  # enough where the guest never mounts it


def digest(data):
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@contextlib.contextmanager
def template(api, name, kernel, initrd, cmdline="", claimed_kernel=None):
    """A template made of the given bytes and an empty disk."""
    if not TEMPLATE.is_dir():
        pytest.skip("no RAMET_TEMPLATE_DIR with a built template")
    disk = bytes(DISK_BYTES)
    document = json.loads((TEMPLATE / "template.json").read_text())
    document.update(name=name, cmdline=cmdline, disk_bytes=DISK_BYTES, memory_mib=256, vcpus=1)
    document["files"] = {"vmlinux": digest(claimed_kernel or kernel), "initrd": digest(initrd), "disk.img": digest(disk)}
    try:
        for file, data in {"vmlinux": kernel, "initrd": initrd, "disk.img": disk}.items():
            api.call("PUT", f"/v1/templates/{name}/files/{file}", data)
        yield api.call("PUT", f"/v1/templates/{name}", document)
    finally:
        with contextlib.suppress(ApiError):
            api.call("DELETE", f"/v1/templates/{name}")


def error_of(call, *arguments, **fields):
    with pytest.raises(ApiError) as caught:
        call(*arguments, **fields)
    return caught.value


def alive(api):
    return api.call("GET", "/v1/health")["status"] == "ok"


def test_an_unknown_template_is_named(api):
    error = error_of(api.create, template="no-such-template")
    assert error.status == 404
    assert "no-such-template" in str(error)


def test_absurd_sizes_name_their_limit(api):
    for fields in [{"vcpus": 0}, {"vcpus": 1000}, {"memory_mib": 0}, {"memory_mib": 10**9}, {"ttl_seconds": -1}, {"nonsense": 1}]:
        error = error_of(api.create, **fields)
        assert 400 <= error.status < 500 or error.status == 507, error
        assert error.body["error"]["message"]


def test_more_memory_than_the_host_could_ever_boot_is_refused_before_booting(api):
    if api.call("GET", "/v1/host")["memory"]["available_bytes"] > 14 << 30:
        pytest.skip("this host has room for the page descriptors of 900 GiB")
    begin = time.monotonic()
    error = error_of(api.create, memory_mib=900 << 10)
    assert error.code == "no_memory", error
    assert "900" in str(error) or str(900 << 10) in str(error), error  # the value asked for, next to what there is
    assert "available" in str(error), error
    assert time.monotonic() - begin < 10
    assert alive(api)


def test_broken_json_and_wrong_types_are_answers(api):
    for body in [b"{", b"[]", b'"x"', b"{\"template\": 7}", b"\xff\xfe", b"[" * 100_000]:
        error = error_of(api.call, "POST", "/v1/sandboxes", body)
        assert error.status in (400, 413, 415, 422), error
    assert alive(api)


def test_a_truncated_upload_is_refused(api):
    kernel = (TEMPLATE / "vmlinux").read_bytes() if TEMPLATE.is_dir() else b""
    error = error_of(lambda: template(api, "cut-short", kernel[:100_000], b"initrd", claimed_kernel=kernel).__enter__())
    assert error.code in ("corrupt", "invalid"), error


def test_a_truncated_kernel_is_a_clear_error(api):
    kernel = (TEMPLATE / "vmlinux").read_bytes()[:100_000] if TEMPLATE.is_dir() else b""
    with template(api, "half-kernel", kernel, b"initrd"):
        error = error_of(api.create, template="half-kernel")
        assert "kernel" in str(error)
    assert alive(api)


def test_a_kernel_that_panics_says_so_with_its_console(api):
    kernel = (TEMPLATE / "vmlinux").read_bytes() if TEMPLATE.is_dir() else b""
    with template(api, "panics", kernel, b"not an initial RAM disk"):
        error = error_of(api.create, template="panics")
        assert "panic" in str(error).lower(), error
    assert alive(api)


def test_a_guest_that_panics_ends_its_sandbox_only(api, sandbox):
    with api.create() as doomed:
        with contextlib.suppress(ApiError, OSError):
            doomed.exec("sudo sh -c 'echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger'", timeout_seconds=20)
        end = time.monotonic() + 60
        while doomed.get()["state"] == "running":
            assert time.monotonic() < end, "a panicked guest still counts as running"
            time.sleep(0.5)
        assert error_of(doomed.exec, "true").status in (404, 409, 503)
    assert sandbox.run("echo fine") == "fine"


def test_a_flooded_console_is_bounded(sandbox):
    sandbox.exec("sudo sh -c 'timeout 5 yes 0123456789abcdef0123456789abcdef > /dev/console'", timeout_seconds=60)
    log = sandbox.client.call("GET", f"{sandbox.path}/logs")
    assert 0 < len(log) <= 1 << 20
    assert sandbox.run("echo fine") == "fine"


def test_floods_of_output_and_connections_stay_bounded(sandbox):
    result = sandbox.exec("timeout 3 yes | head -c 20000000 > /dev/null; seq 100000", timeout_seconds=60)
    assert result["exit_code"] == 0
    sandbox.start("timeout 20 sh -c 'yes & yes & yes & wait'")
    assert sandbox.run("echo fine") == "fine"


def test_a_full_guest_disk_is_the_guests_problem(sandbox):
    sandbox.run("sudo fallocate -l $(df --output=avail -B1 / | tail -1) /full || true; sudo sh -c 'yes > /rest' || true", timeout_seconds=120)
    error = error_of(sandbox.write, "/home/user/one-too-many", b"x" * 100_000)
    assert error.code == "no_space", error
    sandbox.run("sudo rm /full /rest")
    sandbox.write("/home/user/fits-again", b"x" * 100_000)
    assert len(sandbox.read("/home/user/fits-again")) == 100_000


def test_a_command_past_its_time_is_killed_with_its_group(sandbox):
    result = sandbox.exec("sleep 1000 & sleep 1000", timeout_seconds=1)
    assert result["timed_out"]
    assert sandbox.exec("pgrep -x sleep")["stdout"] == ""


def test_unusual_paths_are_errors_not_crashes(api, sandbox):
    for path in ["", "relative", "/" + "x" * 5000, "/no/such/file", "/etc/../../../nope"]:
        assert error_of(sandbox.read, path).status in (400, 404), path
    assert error_of(api.call, "GET", "/v1/sandboxes/%00%ff").status in (400, 404)
    assert error_of(api.call, "POST", "/v1/sandboxes/../../etc/passwd").status in (400, 404, 405)
    assert alive(api)


def test_forks_outside_the_limits_are_refused(sandbox):
    for fields in [{"n": 0}, {"n": 100_000}, {"n": -1}, {"mode": "some"}]:
        assert error_of(sandbox.client.call, "POST", f"{sandbox.path}/fork", fields).status in (400, 422)
    assert sandbox.run("echo fine") == "fine"
