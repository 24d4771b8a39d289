"""What a boot reads of its template's disk: the frames that hold the blocks it touches, from this host or from a bucket."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORE = "/var/lib/ramet/store"
BUCKET_PORT = 9000  # in the emulated host
HEADER_BYTES = 1024  # of an answer of the server, at most
NO_PREFETCH = {"RAMET_PREFETCH_AFTER": "0"}
AS_BEFORE = {name: "" for name in ("RAMET_PREFETCH_AFTER", "RAMET_REMOTE_ENDPOINT", "RAMET_REMOTE_BUCKET", "RAMET_REMOTE_REGION",
                                   "RAMET_REMOTE_LOCAL_MIB", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.5)


@pytest.fixture
def daemon(api, on_host):
    """Starts rametd again with other variables, after a script has run while it is down. Afterwards it is as it was."""
    if os.environ.get("RAMET_MACHINE_KIND") == "native":
        pytest.skip("only the emulated host starts a daemon again")

    def again(variables, meanwhile="true"):
        unset = "unset " + " ".join(AS_BEFORE)
        lines = "\n".join([unset, *(f"{name}={shlex.quote(value)}" for name, value in variables.items())])
        on_host("sh", "-c", f"cat > /run/rametd.env <<'END'\n{lines}\nEND\ntouch /run/rametd.hold; kill $(pidof rametd); "
                            f"while pidof rametd > /dev/null; do sleep 0.1; done; {meanwhile}; rm /run/rametd.hold")
        wait_until(api.healthy, 60, "a new rametd")

    yield again
    again({})


@pytest.fixture
def bucket(tmp_path):
    """A real S3 server here, reached from the emulated host through its ssh door."""
    where = tmp_path / "s3.json"
    subprocess.run([ROOT / "tests/s3/server", "start", where], check=True)
    server = json.loads(where.read_text(encoding="utf-8"))
    tunnel = subprocess.Popen([ROOT / "machine/machine", "tunnel", f"{BUCKET_PORT}:{server['endpoint'].rpartition(':')[2]}"])
    yield server
    tunnel.terminate()
    tunnel.wait()
    subprocess.run([ROOT / "tests/s3/server", "stop", where], check=True)


def remote_options(server):
    return {"RAMET_REMOTE_ENDPOINT": f"http://127.0.0.1:{BUCKET_PORT}", "RAMET_REMOTE_BUCKET": server["bucket"],
            "RAMET_REMOTE_REGION": server["region"], "RAMET_REMOTE_LOCAL_MIB": "0",
            "AWS_ACCESS_KEY_ID": server["access_key"], "AWS_SECRET_ACCESS_KEY": server["secret_key"]}


def answers_sent(server):
    """By the server's own log: how many GET requests were answered with how many bytes, headers included."""
    text = pathlib.Path(server["access_log"]).read_text(encoding="utf-8")
    sizes = [int(sent) for sent in re.findall(r'"GET [^"]*" 20[06] (\d+)', text)]
    return len(sizes), sum(sizes)


def reads_of_a_boot(api):
    """Boots the template in a size that was never booted, without a chunk in the cache: what was read for it, and what the
    guest says it read of its disk."""
    before = api.call("GET", "/v1/host")["store"]["reads"]
    [template] = [t for t in api.call("GET", "/v1/templates")["templates"] if t["name"] == "base"]
    with api.create(memory_mib=template["memory_mib"] + 2 * (1 + int(time.time()) % 32)) as booted:
        guest_bytes = 512 * int(booted.run("awk '$3 == \"vda\" { print $6 }' /proc/diskstats"))
    after = api.call("GET", "/v1/host")["store"]["reads"]
    return {name: after[name] - before[name] for name in before if name != "readers"}, guest_bytes


def check(reads, guest_bytes, fetched, place):
    frames = reads["distinct_frame_bytes"]
    print(f"\n{place}: the guest read {guest_bytes} bytes of its disk, in {reads['asks']} asks; {frames} bytes stored of the frames "
          f"with these blocks, {fetched} bytes fetched: {fetched / frames:.2f} x ({reads})")
    assert reads["failed"] == 0 and reads["filled_bytes"] == 0
    assert guest_bytes > 1 << 20 and frames > 500 << 10 and reads["asks"] > 10, "the guest's disk came from somewhere else"
    assert fetched <= 1.5 * frames


def test_a_boot_fetches_the_frames_it_reads_and_little_else(api, daemon):
    daemon(NO_PREFETCH, f"rm -rf {STORE}/cache")
    reads, guest_bytes = reads_of_a_boot(api)
    assert reads["remote_bytes"] == 0
    check(reads, guest_bytes, reads["local_bytes"] - reads["checked_bytes"], "from this host")


def test_a_boot_from_a_bucket_fetches_no_more(api, on_host, daemon, bucket):
    daemon({**NO_PREFETCH, **remote_options(bucket)}, f"rm -rf {STORE}/cache {STORE}.kept; cp -a {STORE} {STORE}.kept")
    try:
        wait_until(lambda: on_host("sh", "-c", f"ls {STORE}/packs | grep -c pack$ || true").strip() == "0", 300, "the upload")
        answers_before, sent_before = answers_sent(bucket)
        reads, guest_bytes = reads_of_a_boot(api)
        answers, sent = (after - before for after, before in zip(answers_sent(bucket), (answers_before, sent_before)))
        check(reads, guest_bytes, sent, f"from a bucket, which counts {answers} answers")
        assert reads["local_bytes"] == 0
        assert 0 < sent - reads["remote_bytes"] < HEADER_BYTES * answers, "the daemon and the server count differently"
    finally:
        daemon({}, f"rm -rf {STORE} && mv {STORE}.kept {STORE}")
