"""What a boot reads of its template's disk: the frames that hold the blocks it touches, from this host or from a bucket."""

import json
import os
import pathlib
import shlex
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORE = "/var/lib/ramet/store"
BUCKET_PORT = 9000  # in the emulated host
NO_REMOTE = {"RAMET_REMOTE_ENDPOINT": "", "RAMET_REMOTE_BUCKET": "", "RAMET_REMOTE_REGION": "", "RAMET_REMOTE_LOCAL_MIB": "",
             "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.5)


@pytest.fixture
def daemon(api, on_host):
    """Starts rametd again with other variables, after a script has run while it is down."""
    if os.environ.get("RAMET_MACHINE_KIND") == "native":
        pytest.skip("only the emulated host starts a daemon again")

    def again(variables, meanwhile="true"):
        lines = "\n".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        on_host("sh", "-c", f"cat > /run/rametd.env <<'END'\n{lines}\nEND\ntouch /run/rametd.hold; kill $(pidof rametd); "
                            f"while pidof rametd > /dev/null; do sleep 0.1; done; {meanwhile}; rm /run/rametd.hold")
        wait_until(api.healthy, 60, "a new rametd")

    yield again
    again({"RAMET_PREFETCH_AFTER": "", **NO_REMOTE})


@pytest.fixture
def bucket(tmp_path):
    """A real S3 server here, reached from the emulated host through its ssh door."""
    where = tmp_path / "s3.json"
    subprocess.run([ROOT / "tests/s3/server", "start", where], check=True)
    server = json.loads(where.read_text(encoding="utf-8"))
    port = server["endpoint"].rpartition(":")[2]
    tunnel = subprocess.Popen([ROOT / "machine/machine", "tunnel", f"{BUCKET_PORT}:{port}"])
    yield {"RAMET_REMOTE_ENDPOINT": f"http://127.0.0.1:{BUCKET_PORT}", "RAMET_REMOTE_BUCKET": server["bucket"],
           "RAMET_REMOTE_REGION": server["region"], "AWS_ACCESS_KEY_ID": server["access_key"],
           "AWS_SECRET_ACCESS_KEY": server["secret_key"]}
    tunnel.terminate()
    tunnel.wait()
    subprocess.run([ROOT / "tests/s3/server", "stop", where], check=True)


def reads_of_a_boot(api):
    """Boots the template in a size that was never booted, without a chunk in the cache. Answers what was read for it."""
    before = api.call("GET", "/v1/host")["store"]["reads"]
    template = api.call("GET", "/v1/templates/base")
    with api.create(memory_mib=template["memory_mib"] + 2 * (1 + int(time.time()) % 32)) as booted:
        assert booted.run("echo up") == "up"
        after = api.call("GET", "/v1/host")["store"]["reads"]
    return {name: after[name] - before[name] for name in before if name != "readers"}


def check(reads, read_bytes, place):
    print(f"\n{place}: {reads['asks']} asks; {reads['distinct_frame_bytes']} bytes stored of the frames with the blocks read, "
          f"{read_bytes} bytes fetched: {read_bytes / reads['distinct_frame_bytes']:.2f} x")
    assert reads["asks"] > 100, "the guest's disk came from somewhere else"
    assert reads["filled_bytes"] == 0 and reads["failed"] == 0
    assert read_bytes <= 1.5 * reads["distinct_frame_bytes"]


def test_a_boot_fetches_the_frames_it_reads_and_little_else(api, daemon):
    daemon({"RAMET_PREFETCH_AFTER": "0", **NO_REMOTE}, f"rm -rf {STORE}/cache")
    reads = reads_of_a_boot(api)
    check(reads, reads["local_bytes"], "from this host")


def test_a_boot_from_a_bucket_fetches_no_more(api, on_host, daemon, bucket):
    keep = f"cp -a {STORE}/packs {STORE}/packs.kept"
    bring_back = f"rm -rf {STORE}/packs && mv {STORE}/packs.kept {STORE}/packs"
    daemon({"RAMET_PREFETCH_AFTER": "0", "RAMET_REMOTE_LOCAL_MIB": "0", **bucket}, f"rm -rf {STORE}/cache; {keep}")
    try:
        wait_until(lambda: on_host("sh", "-c", f"ls {STORE}/packs | grep -c pack$ || true").strip() == "0", 300, "the upload")
        reads = reads_of_a_boot(api)
        assert reads["local_bytes"] == 0
        check(reads, reads["remote_bytes"], "from a bucket")
    finally:
        daemon({"RAMET_PREFETCH_AFTER": "", **NO_REMOTE}, bring_back)
