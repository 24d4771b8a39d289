"""What ordinary clients see: nbdinfo, nbdcopy, qemu-img, qemu-io, fio."""

import json
import random

import pytest

from server import effort, run


def described(server):
    return json.loads(run("nbdinfo", "--json", server.uri))["exports"][0]


def test_nbdinfo_of_a_writable_disk(writable):
    shown = described(writable)
    assert shown["export-size"] == 64 << 20
    assert not shown["is_read_only"] and not shown["is_rotational"]
    for flag in ("can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero", "can_multi_conn", "can_cache", "can_df"):
        assert shown[flag], flag
    assert (shown["block_size_minimum"], shown["block_size_preferred"], shown["block_size_maximum"]) == (1, 4096, 64 << 20)


def test_nbdinfo_of_a_read_only_disk(read_only):
    shown = described(read_only)
    assert shown["is_read_only"] and shown["can_multi_conn"] and shown["can_cache"]
    assert not shown["can_trim"] and not shown["can_zero"]


def test_nbdcopy_out_gives_the_base(read_only, base, folder):
    run("nbdcopy", read_only.uri, folder / "out.raw")
    assert (folder / "out.raw").read_bytes() == base.read_bytes()
    assert (folder / "out.raw").stat().st_blocks * 512 < 8 << 20


def test_nbdcopy_in_and_out_again(writable, folder):
    noise = random.Random(3)
    with open(folder / "in.raw", "wb") as out:
        for at in range(0, 64 << 20, 8 << 20):
            out.seek(at)
            out.write(noise.randbytes(300_001))
        out.truncate(64 << 20)
    run("nbdcopy", "--flush", folder / "in.raw", writable.uri)
    run("nbdcopy", writable.uri, folder / "out.raw")
    assert (folder / "out.raw").read_bytes() == (folder / "in.raw").read_bytes()


def test_a_read_only_disk_refuses_writers(read_only, base):
    assert "ermission" in run("qemu-io", "-f", "raw", "-c", "write 0 4k", read_only.uri, status=None)
    run("qemu-img", "compare", "-f", "raw", "-F", "raw", base, read_only.uri)


def test_qemu_img_converts_and_compares(writable, base, folder):
    run("qemu-img", "compare", "-f", "raw", "-F", "raw", base, writable.uri)
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", writable.uri, folder / "out.qcow2")
    run("qemu-img", "compare", "-f", "qcow2", "-F", "raw", folder / "out.qcow2", base)
    run("qemu-io", "-f", "qcow2", "-c", "write -P 3 5000 70000", folder / "out.qcow2")
    run("qemu-img", "convert", "-n", "-f", "qcow2", "-O", "raw", folder / "out.qcow2", writable.uri)
    run("qemu-img", "compare", "-f", "qcow2", "-F", "raw", folder / "out.qcow2", writable.uri)
    run("qemu-img", "compare", "-f", "raw", "-F", "raw", base, writable.uri, status=1)


def test_qemu_io_patterns_zeroes_and_discards(writable):
    said = run("qemu-io", "-f", "raw",
               "-c", "write -P 1 100 9000", "-c", "write -z 4096 4096", "-c", "read -P 1 100 3996", "-c", "read -P 0 4096 4096",
               "-c", "read -P 1 8192 908",
               "-c", "write -f -P 2 1M 1M", "-c", "write -z -u 1200k 100k", "-c", "read -P 0 1200k 100k", "-c", "read -P 2 1M 100k",
               "-c", "discard 1M 64k", "-c", "read -P 0 1M 64k", "-c", "flush", "-c", "read -P 2 1300k 8k", writable.uri)
    assert "failed" not in said and "invalid" not in said


FIO = ("fio", "--name=job", "--ioengine=nbd", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0",
       "--randrepeat=0")


@pytest.mark.parametrize("sizes", ["4k", "512-64k"])
def test_fio_verifies_random_writes_with_flushes(writable, sizes):
    run(*FIO, f"--uri={writable.uri}", "--rw=randwrite", f"--bsrange={sizes}" if "-" in sizes else f"--bs={sizes}",
        "--bs_unaligned=0", "--size=16m", "--fsync=50", f"--loops={effort(20, 1)}", timeout=1200)


def test_fio_verifies_while_another_connection_trims(writable):
    """Two jobs and not fio's own trim_percentage: with verify and this engine fio 3.33 frees a buffer twice, with any server."""
    run(*FIO, f"--uri={writable.uri}", "--rw=randwrite", "--bs=4k", "--size=16m", "--fsync=64", f"--loops={effort(20, 1)}",
        "--name=trimmer", "--ioengine=nbd", f"--uri={writable.uri}", "--rw=randtrim", "--bs=4k", "--offset=16m", "--size=8m",
        timeout=1200)
    assert "failed" not in run("qemu-io", "-f", "raw", "-c", "read -P 0 16m 8m", writable.uri)


def test_four_connections_of_fio_at_once(writable):
    run(*FIO, f"--uri={writable.uri}", "--numjobs=4", "--offset_increment=16m", "--size=8m", "--rw=randwrite", "--bsrange=512-32k",
        "--fsync=40", "--group_reporting", timeout=600)


def test_four_connections_write_parts_of_the_same_blocks(writable):
    """Connection n owns every fourth piece of 512 bytes, so every block is shared by all."""
    jobs = []
    for number in range(4):
        jobs += [f"--name=job{number}", f"--offset={number * 512}", "--size=1m", "--bs=512", "--rw=write", "--zonemode=strided",
                 "--zonesize=512", "--zonerange=2048"]
    run("fio", "--ioengine=nbd", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0",
        f"--loops={effort(20, 1)}", f"--uri={writable.uri}", *jobs, timeout=600)
