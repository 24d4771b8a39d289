"""A machine is known by pid and start time; one caller at a time; errors say what to do."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tools")]
from emulator import qemu, start, state, tsc  # noqa: E402
from images.run import BuildError  # noqa: E402


@pytest.fixture
def machine(tmp_path):
    return state.Machine(tmp_path)


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def document(process):
    return {"pid": process.pid, "start_time": state.start_time(process.pid)}


def test_a_live_process_is_running(machine, sleeper):
    machine.write_document(document(sleeper))
    assert machine.running() == document(sleeper)


def test_another_process_with_the_same_pid_is_not(machine, sleeper):
    machine.write_document({**document(sleeper), "start_time": 1})
    assert machine.running() is None
    assert not state.signal_process(machine.document(), signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_zombie_is_not_running(sleeper):
    was = document(sleeper)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert state.start_time(was["pid"]) is None


def test_half_a_machine_json_is_no_machine(machine):
    machine.path("machine.json").write_text('{"pid": 1')
    assert machine.running() is None


def test_signal_reaches_the_process(sleeper):
    was = document(sleeper)
    assert state.signal_process(was, signal.SIGTERM)
    assert state.wait_gone(was, 10)


def test_the_folder_is_private(machine):
    assert machine.folder.stat().st_mode & 0o777 == 0o700


def test_memory_override_is_checked(monkeypatch):
    monkeypatch.setenv("RAMET_MACHINE_MEMORY_MIB", "2048")
    assert qemu.default_memory_mib() == 2048
    monkeypatch.setenv("RAMET_MACHINE_MEMORY_MIB", "lots")
    with pytest.raises(BuildError, match="lots"):
        qemu.default_memory_mib()


@pytest.mark.parametrize("words, usable", [('{"usable": true, "reason": "native speed"}', True), ('{"usable": false, "reason": "slow"}', False),
                                           ("nonsense", False), ("[]", False)])
def test_kvm_probe_understands_the_vmm(tmp_path, monkeypatch, words, usable):
    monkeypatch.setattr(start.os.path, "exists", lambda path: True)
    program = tmp_path / "ramet-vmm"
    program.write_text(f"#!/bin/sh\necho '{words}'\n")
    program.chmod(0o755)
    assert start.probe_kvm(program)[0] is usable


def command(*arguments, **environment):
    return subprocess.run([HERE.parent / "machine", *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


def test_commands_without_a_machine_say_what_to_do(tmp_path):
    done = command("exec", "--", "true", RAMET_STATE=str(tmp_path))
    assert done.returncode == 1
    assert "machine start" in done.stderr


def test_status_without_a_machine(tmp_path):
    done = command("status", "--json", RAMET_STATE=str(tmp_path))
    assert done.returncode == 3
    assert json.loads(done.stdout) == {"running": False}


def test_tsc_rate_is_stable_and_plausible():
    first, second = tsc.measure_khz(), tsc.measure_khz()
    assert 500_000 < first < 10_000_000
    assert abs(first - second) < first / 1000


@pytest.mark.parametrize("console, error", [(None, BuildError), ("Linux", BuildError), (start.STALLED_CPU, start.StalledCpu)])
def test_a_machine_that_ends_while_starting_is_an_error_that_says_so(machine, console, error):
    if console:
        machine.path("console.log").write_text(f"{console}\n")
    gone = {"pid": os.getpid(), "start_time": -1, "kind": "emulated"}
    with pytest.raises(BuildError, match="ended while starting") as raised:
        start._wait(machine, gone, lambda: False, "it does not answer")
    assert raised.type is error


@pytest.mark.parametrize("console, error", [("", start.StalledCpu), ("machine: the kernel is up\n", BuildError)])
def test_a_kernel_that_hangs_is_booted_again_and_a_slow_daemon_is_not(machine, monkeypatch, console, error):
    monkeypatch.setattr(start, "KERNEL_SECONDS", 0.2)
    monkeypatch.setattr(start, "START_SECONDS", 1)
    machine.path("console.log").write_text(console)
    with subprocess.Popen(["sleep", "60"]) as process:
        document = {"pid": process.pid, "start_time": state.start_time(process.pid), "kind": "emulated"}
        with pytest.raises(BuildError) as raised:
            start._wait(machine, document, lambda: False, "it does not answer")
    assert raised.type is error


def test_the_machine_is_booted_again_twice(machine, monkeypatch):
    boots, said = [], []

    def boot(*_):
        boots.append(1)
        raise start.StalledCpu("hangs")

    for name in ("own_programs", "write_images", "_make_state_disk"):
        monkeypatch.setattr(start, name, lambda *_: None)
    monkeypatch.setattr(start.shell, "make_keys", lambda _: {})
    monkeypatch.setattr(start, "_boot", boot)
    with pytest.raises(start.StalledCpu):
        start._start_emulated(machine, said.append, False)
    assert len(boots) == 3 and len(said) == 2
