"""ramet-store as its users meet it: images in and out, and a store that was damaged."""
import os
import pathlib
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
from crc32c import crc32c  # noqa: E402
from stores import PROGRAM, make_image

CORRUPT, NOT_FOUND, CONFLICT = "corrupt", "not found", "conflict"


def test_an_image_comes_out_as_it_went_in(store, tmp_path):
    image = make_image(tmp_path / "a.raw", 1)
    assert "40.0 MiB" in store.run("import", image, "a").stdout
    store.run("export", "a", tmp_path / "b.raw")
    assert (tmp_path / "b.raw").read_bytes() == image.read_bytes()
    assert os.stat(tmp_path / "b.raw").st_blocks * 512 < 5 << 20
    assert [row["name"] for row in store.json("ls")] == ["a"]
    shown = store.json("show", "a")
    assert shown["bytes"] == 40 << 20 and shown["nonzero_chunks"] == 2 and shown["nonzero_bytes"] == (3 << 20) + 25 * 4096


def test_a_changed_image_costs_what_changed(store, tmp_path):
    image = make_image(tmp_path / "a.raw", 1)
    store.run("import", image, "a")
    with open(image, "r+b") as file:
        file.seek(1 << 20)
        file.write(b"changed")
    assert store.json("import", image, "b", "--parent", "a")["stored_bytes"] < 40_000
    assert [row["chunk"] for row in store.json("diff", "a", "b")] == [0]
    stats = store.json("stats")
    assert stats["images"] == 2 and stats["unique_bytes"] + stats["shared_bytes"] < stats["logical_bytes"]


def test_the_space_of_a_removed_image_comes_back(store, tmp_path):
    for seed in (1, 2):
        store.run("import", make_image(tmp_path / f"{seed}.raw", seed), f"image{seed}")
    before = store.json("stats")["stored_bytes"]
    assert store.json("gc")["chunks_removed"] == 0
    store.run("rm", "image1")
    assert store.json("gc")["bytes_after"] < before * 0.55
    store.run("export", "image2", tmp_path / "b.raw")
    assert (tmp_path / "b.raw").read_bytes() == (tmp_path / "2.raw").read_bytes()
    assert store.json("verify")["problems"] == []
    store.run("rm", "image2")
    store.run("gc")
    assert store.packs() == []


def add_snapshot(store, snapshot, image):
    """As a daemon does it (docs/formats/snapshot.md): of the image's disk alone."""
    root = (store.directory / "images" / f"{image}.manifest").read_bytes()
    header = b"RMTSNAPS" + struct.pack("<IIIIIIQ", 1, 64, 2, len(root), 0, 0, 0) + bytes(16)
    header += struct.pack("<I", crc32c(b"{}" + root))
    directory = store.directory / "snapshots"
    directory.mkdir(exist_ok=True)
    record = directory / f"{snapshot}.snapshot"
    record.write_bytes(header + struct.pack("<I", crc32c(header)) + b"{}" + root)
    return record


def test_what_a_snapshot_needs_is_kept_and_counted(store, tmp_path):
    image = make_image(tmp_path / "a.raw", 1)
    store.run("import", image, "a")
    record = add_snapshot(store, "snap", "a")
    store.run("rm", "a")
    assert store.json("gc")["chunks_removed"] == 0
    assert store.json("ls") == [{"name": "snap", "kind": "snapshot", "bytes": 40 << 20}]
    stats = store.json("stats")
    assert stats["snapshots"] == 1 and stats["images"] == 0 and stats["dead_bytes"] == 0
    assert store.json("verify")["problems"] == []
    # Its record is what image files are, behind a header: the disk is whole.
    (store.directory / "images" / "back.manifest").write_bytes(record.read_bytes()[66:])
    store.run("export", "back", tmp_path / "b.raw")
    assert (tmp_path / "b.raw").read_bytes() == image.read_bytes()
    store.run("rm", "back")

    good = record.read_bytes()
    record.write_bytes(good[:-1])
    assert "snap" in store.run("gc", status=CORRUPT).stderr
    assert store.packs() != []
    record.unlink()
    store.run("gc")
    assert store.packs() == []


def test_damage_is_named_and_ends_with_a_status(store, tmp_path):
    store.run("import", make_image(tmp_path / "a.raw", 1), "a")
    assert store.json("verify")["problems"] == []
    pack = store.packs()[0]
    data = bytearray(pack.read_bytes())
    data[1000] ^= 1
    pack.write_bytes(data)
    done = store.run("verify", status=CORRUPT)
    assert pack.stem in done.stdout
    assert not store.run("export", "a", tmp_path / "b.raw", status=CORRUPT).stdout
    assert not (tmp_path / "b.raw").exists()


def test_the_index_comes_back(store, tmp_path):
    image = make_image(tmp_path / "a.raw", 2)
    store.run("import", image, "a")
    for left in store.directory.glob("index.db*"):
        left.unlink()
    assert store.json("rebuild-index")["packs"] == 1
    store.run("export", "a", tmp_path / "b.raw")
    assert (tmp_path / "b.raw").read_bytes() == image.read_bytes()


def test_mistakes_get_an_answer(store, tmp_path):
    assert "no store" in store.run("ls", status=NOT_FOUND).stderr
    assert not store.directory.exists()
    image = make_image(tmp_path / "a.raw", 1)
    store.run("import", image, "a")
    assert "already" in store.run("import", image, "a", status=CONFLICT).stderr
    assert "no image 'b'" in store.run("show", "b", status=NOT_FOUND).stderr
    assert "letters" in store.run("import", image, "../b", status=2).stderr
    (tmp_path / "there").write_text("mine")
    store.run("export", "a", tmp_path / "there", status=CONFLICT)
    assert (tmp_path / "there").read_text() == "mine"
    assert "no-such-file" in store.run("import", tmp_path / "no-such-file", "c", status=NOT_FOUND).stderr


def test_help_says_what_there_is():
    text = subprocess.run([str(PROGRAM), "--help"], capture_output=True, text=True, check=True).stdout
    for word in ("import", "export", "diff", "stats", "verify", "rebuild-index", "rm", "gc", "--json", "RAMET_STORE"):
        assert word in text
