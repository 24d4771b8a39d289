"""ramet-store that is killed, or that finds the disk full: the old state or the new one, and it works again afterwards."""
import hashlib
import os
import random
import subprocess
import time

import pytest
from stores import Store, make_image

BLOCK = 4096
KILLS = 60 if os.environ.get("RAMET_SOAK") else 8


def kill_after(store, seconds, *words):
    process = subprocess.Popen(store.command("-q", *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


def test_an_import_that_is_killed_leaves_the_old_state_or_the_new_one(store, tmp_path):
    store.run("import", make_image(tmp_path / "first.raw", 1), "first")
    image = make_image(tmp_path / "second.raw", 2, mib=64)
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", image, tmp_path / "second.qcow2"], check=True)
    before = time.monotonic()
    store.run("import", "-f", "qcow2", tmp_path / "second.qcow2", "second")
    whole = time.monotonic() - before
    store.run("rm", "second")
    random_numbers = random.Random(7)
    for _ in range(KILLS):
        done = kill_after(store, random_numbers.uniform(0, whole), "import", "-f", "qcow2", tmp_path / "second.qcow2", "second")
        names = {row["name"] for row in store.json("ls") if row["kind"] == "disk"}
        assert names in ({"first"}, {"first", "second"}) and (not done or "second" in names)
        assert store.json("verify")["problems"] == []
        # Files for work have no names, and packs that were not committed go when the store is opened.
        assert {p.name for p in store.directory.iterdir()} <= {"packs", "images", "index.db", "index.db-wal", "index.db-shm"}
        if "second" in names:
            store.run("rm", "second")
    store.run("import", "-f", "qcow2", tmp_path / "second.qcow2", "second")
    store.run("gc")
    for name in ("first", "second"):
        store.run("export", name, tmp_path / "out.raw")
        assert (tmp_path / "out.raw").read_bytes() == (tmp_path / f"{name}.raw").read_bytes()
        (tmp_path / "out.raw").unlink()


def test_an_export_that_is_killed_leaves_no_file(store, tmp_path):
    store.run("import", make_image(tmp_path / "a.raw", 1), "a")
    (tmp_path / "out").mkdir()
    for seconds in (0.01, 0.03, 0.06, 0.1):
        for form in ("raw", "qcow2"):
            done = kill_after(store, seconds, "export", "-f", form, "a", tmp_path / "out" / "file")
            # Whole, even if the kill came after that, or not there.
            if (tmp_path / "out" / "file").exists():
                subprocess.run(["qemu-img", "compare", "-q", "-f", "raw", "-F", form, tmp_path / "a.raw", tmp_path / "out" / "file"], check=True)
                (tmp_path / "out" / "file").unlink()
            else:
                assert not done
            assert list((tmp_path / "out").iterdir()) == []


def in_small_disk(mib, tmp_path, script):
    """A shell script in a mount namespace, with tmp_path/small a file system of so many MiB."""
    (tmp_path / "small").mkdir(exist_ok=True)
    mount = f"mount -t tmpfs -o size={mib}m none {tmp_path}/small"
    return subprocess.run(["unshare", "--mount", "--map-root-user", "sh", "-c", f"{mount} || exit 77; {script}"],
                          capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("form", ["raw", "qcow2", "tar"])
def test_a_full_disk_is_said_and_works_again_afterwards(tmp_path, form):
    image = make_image(tmp_path / "a.raw", 1)
    file = tmp_path / f"a.{form}"
    if form == "qcow2":
        subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", image, file], check=True)
    if form == "tar":
        subprocess.run(["tar", "-C", tmp_path, "-cf", file, "a.raw"], check=True)
    store = Store(tmp_path / "small" / "store")
    command = " ".join(store.command("-q", "import", "-f", form, file, "a"))
    # 3 MiB of noise do not fit beside a ballast of all but 2 MiB.
    done = in_small_disk(64, tmp_path, f"""
        {" ".join(store.command("ls"))} 2>/dev/null
        head -c 62M /dev/zero > {tmp_path}/small/ballast
        {command}; echo "first $?"
        ls -A {tmp_path}/small/store/images {tmp_path}/small/store/packs | grep -c -e pack$ -e manifest -e unfinished
        rm {tmp_path}/small/ballast
        {command}; echo "second $?"
        {" ".join(store.command("verify"))}""")
    if done.returncode == 77:
        pytest.skip("no mount namespaces here: " + done.stderr)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("first ") and lines[0] != "first 0", done.stdout + done.stderr
    assert "No space left" in done.stderr or "disk is full" in done.stderr, done.stderr
    assert lines[1] == "0", done.stdout  # neither packs nor images
    assert "second 0" in lines and lines[-1].endswith("0 problems"), done.stdout + done.stderr


def test_an_export_to_a_full_disk_leaves_no_file(store, tmp_path):
    store.run("import", make_image(tmp_path / "a.raw", 1), "a")
    (tmp_path / "files").mkdir()
    make_image(tmp_path / "files" / "noise", 2)
    store.run("import", "-f", "dir", tmp_path / "files", "files")
    for form, name in (("raw", "a"), ("qcow2", "a"), ("tar", "files"), ("dir", "files")):
        command = " ".join(store.command("-q", "export", "-f", form, name, tmp_path / "small" / "out"))
        done = in_small_disk(2, tmp_path, f"{command}; echo $?; ls -A {tmp_path}/small")
        if done.returncode == 77:
            pytest.skip("no mount namespaces here: " + done.stderr)
        assert done.stdout.strip() not in ("", "0") and len(done.stdout.split()) == 1, done.stdout + done.stderr
        assert "No space left" in done.stderr, done.stderr


def blocks_of(path):
    data = path.read_bytes()
    blocks = [data[at:at + BLOCK] for at in range(0, len(data), BLOCK)]
    return [hashlib.sha256(b).digest() for b in blocks if b.strip(b"\0")]


def test_stats_are_what_a_count_of_the_blocks_says(store, tmp_path):
    """Unique, shared and dead against sets of blocks that this test counts itself; manifests are a page per image."""
    first = make_image(tmp_path / "first.raw", 1, mib=21)
    second, third = tmp_path / "second.raw", make_image(tmp_path / "third.raw", 3, mib=21)
    second.write_bytes(first.read_bytes())
    with open(second, "r+b") as file:
        file.write(random.Random(9).randbytes(10 * BLOCK))
    store.run("import", first, "first")
    store.run("import", second, "second", "--parent", "first")
    store.run("import", third, "third")
    store.run("rm", "third")
    a, b, c = blocks_of(first), blocks_of(second), blocks_of(third)
    page = 8192  # of which half is zeros here: 2 chunks
    stats = store.json("stats")
    assert stats["images"] == 2
    assert stats["logical_bytes"] == (len(a) + len(b)) * BLOCK
    assert stats["shared_bytes"] == len(set(a) & set(b)) * BLOCK
    assert stats["unique_bytes"] == len(set(a) ^ set(b)) * BLOCK + 2 * page // 2
    assert stats["dead_bytes"] == len(set(c)) * BLOCK + page // 2
    assert stats["stored_bytes"] == sum(p.stat().st_size for p in store.packs())
    # Noise does not compress, so dead bytes take themselves; a page and records are small.
    assert abs(stats["dead_stored_bytes"] - len(c) * BLOCK) < 16384
    store.run("gc")
    after = store.json("stats")
    assert after["dead_bytes"] == 0 and after["dead_stored_bytes"] == 0
    assert stats["stored_bytes"] - after["stored_bytes"] == pytest.approx(stats["dead_stored_bytes"], abs=65536)


def test_the_disks_of_templates_are_not_garbage(store, tmp_path):
    """A daemon keeps them beside the images of users, in the same store."""
    store.run("import", make_image(tmp_path / "a.raw", 1), "a")
    (store.directory / "templates").mkdir()
    os.rename(store.directory / "images" / "a.manifest", store.directory / "templates" / "a.manifest")
    assert store.json("gc")["chunks_removed"] == 0
    assert store.json("stats")["images"] == 1
