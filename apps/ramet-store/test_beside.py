"""ramet-store beside another process that has the store open: what only looks works, and calls nothing damaged that was collected."""
import random
import subprocess
import threading
import time

import pytest
from stores import PROGRAM, Store, make_image

MIB = 1 << 20


@pytest.fixture
def daemon(tmp_path):
    """A real rametd, and a function that runs `ramet` against it."""
    socket = tmp_path / "run" / "rametd.sock"
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen([PROGRAM.parent / "rametd", "--state", tmp_path / "state", "--runtime", tmp_path / "run"],
                                   stdout=log, stderr=log)
    try:
        for _ in range(500):
            if socket.exists() or process.poll() is not None:
                break
            time.sleep(0.02)
        assert socket.exists(), (tmp_path / "log").read_text()
        yield lambda *words: subprocess.run([PROGRAM.parent / "ramet", "--url", f"unix://{socket}", *map(str, words)],
                                            check=True, capture_output=True, timeout=60)
    finally:
        process.terminate()
        process.wait(30)


def test_what_only_looks_works_while_rametd_runs(daemon, tmp_path):
    store = Store(tmp_path / "state" / "store")
    image = make_image(tmp_path / "a.raw", 1)
    daemon("image", "import", image, "a")
    with open(image, "r+b") as file:
        file.write(b"changed")
    daemon("image", "import", image, "b")
    assert [row["name"] for row in store.json("ls")] == ["a", "b"]
    assert store.json("show", "a")["nonzero_chunks"] == 2
    assert [row["chunk"] for row in store.json("diff", "a", "b")] == [0]
    assert store.json("stats")["images"] == 2
    assert store.json("verify")["problems"] == []
    store.run("export", "b", tmp_path / "b.raw")
    assert (tmp_path / "b.raw").read_bytes() == image.read_bytes()
    refused = store.run("gc", status="conflict").stderr
    assert "open in another process" in refused and "ramet image" in refused
    daemon("image", "rm", "a")
    assert [row["name"] for row in store.json("ls")] == ["b"]
    daemon("image", "export", "b", tmp_path / "c.raw")  # and the daemon goes on
    assert (tmp_path / "c.raw").read_bytes() == image.read_bytes()


def change_and_collect(store, image, rounds, stopped):
    """Each round a version of the image comes, the one before goes, and its blocks are collected."""
    noise = random.Random(3)
    try:
        for n in range(rounds):
            with open(image, "r+b") as file:
                file.seek(noise.randrange(2) * MIB)
                file.write(noise.randbytes(MIB))
            store.run("-q", "import", image, f"version-{n}")
            if n > 0:
                store.run("rm", f"version-{n - 1}")
                store.run("gc")
    finally:
        stopped.set()


def test_nothing_is_wrong_beside_collections(store, tmp_path):
    kept = make_image(tmp_path / "kept.raw", 1)
    store.run("import", kept, "kept")
    stopped = threading.Event()
    writer = threading.Thread(target=change_and_collect, args=(store, make_image(tmp_path / "other.raw", 2), 12, stopped))
    writer.start()
    looks = 0
    while not stopped.is_set():
        assert store.json("verify")["problems"] == []
        stats = store.json("stats")
        assert stats["logical_bytes"] >= 3 * MIB and stats["dead_bytes"] <= 8 * MIB
        assert {"kept"} <= {row["name"] for row in store.json("ls")}
        assert store.json("show", "kept")["nonzero_chunks"] == 2
        looks += 1
    writer.join()
    assert looks > 2
    assert {row["name"] for row in store.json("ls")} == {"kept", "version-11"}
    store.run("export", "kept", tmp_path / "out.raw")
    assert (tmp_path / "out.raw").read_bytes() == kept.read_bytes()
