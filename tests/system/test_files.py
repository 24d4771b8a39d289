"""Files through the API."""

import hashlib
import os

import pytest

from client import ApiError


def test_a_file_comes_back_as_it_went_in(sandbox):
    data = os.urandom(3 << 20)
    sandbox.write("/home/user/data", data)
    assert sandbox.read("/home/user/data") == data
    assert sandbox.run("sha256sum data").split()[0] == hashlib.sha256(data).hexdigest()


def test_written_files_belong_to_the_user(sandbox):
    sandbox.write("/home/user/script", b"#!/bin/sh\necho ran\n", mode="0755")
    assert sandbox.run("stat -c '%U %a' script; ./script") == "user 755\nran"


def test_a_missing_file_is_not_found(sandbox):
    with pytest.raises(ApiError) as caught:
        sandbox.read("/home/user/nothing")
    assert (caught.value.status, caught.value.code) == (404, "not_found")


def test_list_stat_mkdir_move_and_remove(sandbox):
    files = f"{sandbox.path}/files"
    sandbox.client.call("POST", f"{files}/mkdir", {"path": "/home/user/a/b", "parents": True})
    sandbox.write("/home/user/a/b/one", b"1")
    sandbox.client.call("POST", f"{files}/move", {"from": "/home/user/a/b/one", "to": "/home/user/a/b/two"})
    entry = sandbox.client.call("GET", f"{files}/stat", path="/home/user/a/b/two")
    assert entry["name"] == "two"
    listed = sandbox.client.call("GET", f"{files}/list", path="/home/user/a/b")
    assert [row["name"] for row in listed["entries"]] == ["two"]
    sandbox.client.call("DELETE", files, path="/home/user/a", recursive="1")
    assert sandbox.run("ls -A | grep -c '^a$' || true") == "0"
