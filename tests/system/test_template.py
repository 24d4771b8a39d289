"""Templates: what they start from, and how they are built by steps."""

import json
import os
import subprocess
import time

import pytest
from client import Sandbox
from test_survival import wait_until

SLOW = 600  # an emulated processor hashes and fills slowly


def origin(api):
    [base] = [t for t in api.call("GET", "/v1/templates")["templates"] if t["name"] == "base"]
    return base["status"], base.get("started_from")


@pytest.fixture
def restart_in_peace(api, on_host):
    """Ends rametd by SIGTERM, so that it takes its zygotes along; another comes by itself."""
    def restart():
        old = on_host("pidof", "rametd").strip()
        on_host("kill", "-TERM", old)
        wait_until(lambda: on_host("pidof", "rametd", check=False).strip() not in ("", old) and api.healthy(), 120, "a new rametd")
    return restart


def timed_create(api):
    began = time.monotonic()
    sandbox = api.call("POST", "/v1/sandboxes", {"template": "base", "memory_mib": 384}, timeout=SLOW)
    took = time.monotonic() - began
    api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")
    return took, sandbox["timing"]["template_boot_ms"]


def test_the_first_sandbox_after_a_restart_needs_no_boot(api, on_host, restart_in_peace):
    records = "grep -l '\"memory_mib\":384' /var/lib/ramet/store/snapshots/* | wc -l"
    with api.create() as sandbox:  # of the usual size, which may be there from an earlier test
        assert sandbox.run("echo here") == "here"
        booted, _ = timed_create(api)
        wait_until(lambda: int(on_host("sh", "-c", records)) > 0, SLOW, "the booted machine in the store")
        restart_in_peace()
        assert origin(api)[0] == "cold"
        stored, waited_ms = timed_create(api)
        assert origin(api) == ("ready", "store")
        print(f"first sandbox of 384 MiB: {booted:.1f} s with a boot, {stored:.1f} s from the store ({waited_ms:.0f} ms of it reading)")
        assert stored < booted
        with api.create() as another:
            assert another.run("cat /etc/machine-id; hostname") != sandbox.run("cat /etc/machine-id; hostname")
            assert abs(float(another.run("date +%s.%N")) - time.time()) < 5


SERVE = """
import http.server, os, time
time.sleep(1)
born = time.time()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f'{os.getpid()} {born} {open("words").read()}'.encode())
    def log_message(self, *_): pass
http.server.HTTPServer(('127.0.0.1', 8000), Answer).serve_forever()
"""
ASK = "python3 -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000').read().decode())\""


@pytest.fixture
def build(api, tmp_path):
    """Builds the template `web` by steps; what it printed to stderr."""
    def run(steps, status=0):
        (tmp_path / "web.json").write_text(json.dumps({"from": "base", "steps": steps}))
        done = subprocess.run(["ramet", "template", "build", "web", "-f", tmp_path / "web.json"], stderr=subprocess.PIPE,
                              stdout=subprocess.PIPE, timeout=SLOW, env={**os.environ}, check=False)
        words = done.stderr.decode()
        assert done.returncode == status, words
        return words

    yield run
    if "web" in [t["name"] for t in api.call("GET", "/v1/templates")["templates"]]:
        api.call("DELETE", "/v1/templates/web")
    for one in api.call("GET", "/v1/snapshots")["snapshots"]:
        api.call("DELETE", f"/v1/snapshots/{one['id']}")


def of_web(api):
    return Sandbox(api, api.call("POST", "/v1/sandboxes", {"template": "web"}, timeout=SLOW))


def test_a_template_is_built_by_steps_and_its_server_runs_in_every_sandbox(api, build, tmp_path):
    (tmp_path / "serve.py").write_text(SERVE)
    (tmp_path / "words").write_text("first")
    steps = [{"env": {"WHO": "web"}}, {"workdir": "/home/user"},
             {"user": "root"}, {"run": "echo $WHO > /etc/who; date +%s.%N > /etc/built"}, {"user": "user"},
             {"copy": "words", "to": "words"}, {"copy": "serve.py", "to": "serve.py"},
             {"start": "exec python3 serve.py", "ready": ASK, "ready_seconds": 120}]
    build(steps)
    with of_web(api) as one, of_web(api) as other:
        answers = [sandbox.run(ASK) for sandbox in (one, other)]
        assert answers[0] == answers[1] and answers[0].endswith(" first")
        assert one.run("cat /etc/who; echo $WHO").split() == ["web", "web"]
        assert one.run("hostname; cat /proc/sys/kernel/random/uuid") != other.run("hostname; cat /proc/sys/kernel/random/uuid")
        built = one.run("cat /etc/built")
        (tmp_path / "words").write_text("second")
        began = time.monotonic()
        words = build(steps)
        print(f"built again from the copy on in {time.monotonic() - began:.1f} s")
        assert "echo $WHO > /etc/who; date +%s.%N > /etc/built (kept)" in words and "words (kept)" not in words
        with of_web(api) as new:
            assert new.run("cat /etc/built") == built
            assert new.run(ASK).endswith(" second")
        assert one.run(ASK) == answers[0]


def test_a_step_that_fails_says_all(build):
    words = build([{"run": "echo one"}, {"run": "echo out; ls /nothere; exit 7"}], status=1)
    assert "step 2 of 2 (`run echo out; ls /nothere; exit 7`) ended with exit code 7; its output ends with:\nout\n" in words
    assert "No such file" in words
