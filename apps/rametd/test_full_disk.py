"""A daemon whose state lies on a disk that is really full: who asks for more is told so, and nothing else suffers."""

import hashlib
import io
import random
import re
import tarfile

import pytest

from small_disk import MIB, Daemon, SmallDisk, wait_until

NAME = re.compile(r"/\S+")  # of the place, in a message
NUMBER = re.compile(r"\d+ (MiB|bytes)")


def noise(mib, seed):
    return random.Random(seed).randbytes(int(mib * MIB))


FIRST, SECOND = noise(4, 1), noise(6, 2)


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request, tmp_path_factory):
    try:
        small = SmallDisk(tmp_path_factory.mktemp("d"), request.param)
    except OSError as why:
        pytest.skip(f"no {request.param} can be mounted here: {why}")
    yield small
    small.close()


@pytest.fixture
def daemon(disk, tmp_path_factory):
    """With an image `first` and a template `t`, and what it lays aside laid aside."""
    with Daemon(tmp_path_factory.mktemp("r"), disk) as running:
        assert running.call("POST", "/v1/images/first", FIRST, format="raw").status == 201
        assert put_template(running, "t").status == 201
        wait_until((disk.path / "state/ballast").exists, "the ballast is there")
        yield running


def template(name):
    files = {"vmlinux": b"\x7fELF\x02" + noise(0.1, 3), "initrd": noise(0.1, 4), "disk.img": noise(1, 5)}
    listed = {file: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for file, content in files.items()}
    manifest = {"format": 1, "name": name, "kernel_release": "6", "vcpus": 1, "memory_mib": 64, "disk_bytes": MIB, "files": listed}
    return files, manifest


def put_template(daemon, name):
    """The first answer that is none of success, or that of the commit."""
    files, manifest = template(name)
    for file, content in files.items():
        answer = daemon.call("PUT", f"/v1/templates/{name}/files/{file}", content)
        if answer.status != 200:
            return answer
    return daemon.call("PUT", f"/v1/templates/{name}", manifest)


def tar_of(content):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("file")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def assert_no_space(answer):
    assert answer.status == 507, answer.content
    error = answer.json()["error"]
    assert error["code"] == "no_space", error
    assert NAME.search(error["message"]), error
    assert NUMBER.search(error["message"]), error
    assert "disk space" in error["hint"], error


def assert_serves(daemon, names=("first",)):
    assert daemon.is_alive()
    for path in ("/v1/health", "/v1/host", "/v1/sandboxes", "/v1/tree", "/v1/templates", "/v1/images/first"):
        assert daemon.call("GET", path).status == 200, path
    assert [image["name"] for image in daemon.call("GET", "/v1/images").json()["images"]] == sorted(names)
    assert daemon.call("GET", "/v1/images/first/content").content == FIRST


def test_what_needs_room_is_refused_before_it_begins(disk, daemon):
    before = disk.files()
    disk.fill()
    assert_no_space(daemon.call("POST", "/v1/images/second", SECOND, format="raw"))
    assert_no_space(daemon.call("POST", "/v1/images/second", tar_of(SECOND), format="tar"))
    assert_no_space(daemon.call("POST", "/v1/images/second", SECOND, stream=1))
    assert_no_space(daemon.call("PUT", "/v1/templates/u/files/disk.img", SECOND))
    assert_no_space(put_template(daemon, "t"))
    assert_no_space(daemon.call("POST", "/v1/sandboxes", {"template": "t"}))
    assert_no_space(daemon.call("GET", "/v1/images/first/content", format="qcow2"))
    assert_serves(daemon)
    assert disk.files() == before
    disk.free()
    assert daemon.call("POST", "/v1/images/second", SECOND, format="raw").status == 201
    assert daemon.call("GET", "/v1/images/second/content").content == SECOND
    assert put_template(daemon, "u").status == 201
    assert daemon.call("GET", "/v1/images/first/content", format="qcow2").content[:4] == b"QFI\xfb"


def incoming_bytes(disk):
    return sum(path.stat().st_blocks * 512 for path in (disk.path / "state/store/incoming").glob("*"))


@pytest.mark.parametrize("form", ["raw", "qcow2", "tar", "oci"])
def test_an_upload_that_meets_the_end_of_the_disk_leaves_nothing(disk, daemon, form):
    before = disk.files()

    def fill():
        wait_until(lambda: incoming_bytes(disk) >= MIB, "its beginning is written")
        disk.fill()

    content = tar_of(SECOND) if form in ("tar", "oci") else SECOND
    assert_no_space(daemon.call("POST", "/v1/images/second", [content[:2 * MIB], fill, content[2 * MIB:]], format=form))
    assert_serves(daemon)
    assert disk.files() == before
    disk.free()
    assert daemon.call("POST", "/v1/images/second", SECOND, format="raw").status == 201
    assert daemon.call("GET", "/v1/images/second/content").content == SECOND


def test_a_file_of_a_template_that_meets_the_end_of_the_disk_leaves_nothing(disk, daemon):
    before = disk.files()

    def fill():
        upload = disk.path / "state/templates/.upload-u"
        wait_until(lambda: sum(path.stat().st_blocks for path in upload.glob("*")) * 512 >= MIB, "its beginning is written")
        disk.fill()

    assert_no_space(daemon.call("PUT", "/v1/templates/u/files/disk.img", [SECOND[:2 * MIB], fill, SECOND[2 * MIB:]]))
    assert_serves(daemon)
    assert disk.files() == before
    disk.free()
    assert put_template(daemon, "u").status == 201


def test_a_template_whose_commit_finds_no_room_can_be_committed_later(disk, daemon):
    files, manifest = template("u")
    files["disk.img"] = noise(1, 6)
    manifest["files"]["disk.img"]["sha256"] = hashlib.sha256(files["disk.img"]).hexdigest()
    for file, content in files.items():
        assert daemon.call("PUT", f"/v1/templates/u/files/{file}", content).status == 200
    disk.fill()
    assert_no_space(daemon.call("PUT", "/v1/templates/u", manifest))
    assert_serves(daemon)
    assert [one["name"] for one in daemon.call("GET", "/v1/templates").json()["templates"]] == ["t"]
    disk.free()
    assert daemon.call("PUT", "/v1/templates/u", manifest).status == 201


def test_deleting_gives_room(disk, daemon):
    assert daemon.call("POST", "/v1/images/second", SECOND, format="raw").status == 201
    disk.fill()
    assert daemon.call("DELETE", "/v1/images/second").status == 204
    assert_serves(daemon)
    wait_until(lambda: disk.free_bytes() >= len(SECOND), "its space is given back")
    assert daemon.call("DELETE", "/v1/templates/t").status == 204
    assert daemon.call("GET", "/v1/templates").json()["templates"] == []
    wait_until(lambda: disk.free_bytes() >= len(SECOND) + MIB, "that of the template's disk, too")


def test_it_starts_on_a_full_disk(disk, daemon):
    assert daemon.call("POST", "/v1/images/second", SECOND, format="raw").status == 201
    daemon.stop()
    disk.fill()
    daemon.start()
    assert_serves(daemon, ("first", "second"))
    assert_no_space(daemon.call("POST", "/v1/images/third", noise(5, 7), format="raw"))
    assert daemon.call("DELETE", "/v1/images/second").status == 204
    wait_until(lambda: disk.free_bytes() >= len(SECOND), "its space is given back")
    disk.free()
    assert daemon.call("POST", "/v1/images/third", noise(5, 7), format="raw").status == 201


def test_the_log_loses_lines_and_says_so(disk, daemon):
    disk.fill()
    for _ in range(300):  # more than what is left of the last page
        assert daemon.call("GET", "/v1/health").status == 200
    disk.free()
    assert daemon.call("GET", "/v1/tree").status == 200
    wait_until(lambda: "/v1/tree" in daemon.log.read_text(), "the log goes on")
    text = daemon.log.read_text()
    lost = re.search(r"warn rametd: (\d+) lines of this log are missing: No space left on device\n", text)
    assert lost, text[-2000:]
    assert int(lost[1]) + text.count("GET /v1/health status=200") >= 300
    assert all(line.startswith("20") for line in text.splitlines()), "whole lines after it"
