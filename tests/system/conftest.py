"""System tests: real Debian guests over HTTP, against the daemon at $RAMET_URL (tools/test starts one and uploads the template)."""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from client import Client  # noqa: E402


@pytest.fixture(scope="session")
def api():
    url = os.environ.get("RAMET_URL")
    if not url:
        pytest.skip("no RAMET_URL: run `tools/test system`", allow_module_level=True)
    return Client(url)


@pytest.fixture
def sandbox(api):
    with api.create() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_left(request):
    """Each test leaves as many sandboxes as it found."""
    if "api" not in request.fixturenames and "sandbox" not in request.fixturenames:
        yield
        return
    api = request.getfixturevalue("api")
    before = {row["id"] for row in api.list()}
    yield
    after = {row["id"] for row in api.list()}
    assert after <= before, f"left behind: {after - before}"


@pytest.fixture(scope="session")
def on_host():
    """Runs a command where rametd runs: in the emulated host, or here if it runs natively."""
    def run(*argv, check=True):
        prefix = [] if os.environ.get("RAMET_MACHINE_KIND") == "native" else [str(ROOT / "machine/machine"), "exec", "--"]
        done = subprocess.run([*prefix, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        assert not check or done.returncode == 0, f"{argv} on the host: {done.stderr.decode()}"
        return done.stdout.decode()
    return run
