"""One sandbox: what runs in it, and what it is."""

import pytest

from client import ApiError


def test_runs_debian(sandbox):
    assert "bookworm" in sandbox.run("cat /etc/os-release")


def test_runs_commands_as_user(sandbox):
    assert sandbox.run("id -un; pwd") == "user\n/home/user"


def test_user_may_become_root(sandbox):
    assert sandbox.run("sudo -n id -u") == "0"


def test_has_the_tools_of_the_template(sandbox):
    assert sandbox.exec("python3 -c 'print(6*7)' && git --version && curl --version && fio --version && ps -e")["exit_code"] == 0


def test_passes_exit_status_and_both_outputs(sandbox):
    result = sandbox.exec("echo out; echo err >&2; exit 7")
    assert (result["exit_code"], result["stdout"], result["stderr"]) == (7, "out\n", "err\n")


def test_kills_the_process_group_at_the_timeout(sandbox):
    result = sandbox.exec("sleep 300 & sleep 300", timeout_seconds=1)
    assert result["timed_out"]
    assert sandbox.run("pgrep -c sleep || true") == "0"


def test_gives_stdin_env_and_cwd(sandbox):
    assert sandbox.run("cat; echo $WORD; pwd", stdin="in\n", env={"WORD": "hello"}, cwd="/tmp") == "in\nhello\n/tmp"


def test_clock_is_kvm_clock(sandbox):
    assert sandbox.run("cat /sys/devices/system/clocksource/clocksource0/current_clocksource") == "kvm-clock"


def test_unknown_template_is_a_clear_error(api):
    with pytest.raises(ApiError) as caught:
        api.create(template="no-such-template")
    assert (caught.value.status, caught.value.code) == (404, "not_found")


def test_deleted_sandbox_is_not_found(api):
    with api.create() as sandbox:
        sandbox.delete()
        with pytest.raises(ApiError) as caught:
            sandbox.exec("true")
    assert caught.value.status in (404, 409)
