#!/usr/bin/python3
"""Writes snapshot_v1.bin from docs/formats/snapshot.md and manifest.md alone, so that it checks the C++ code and is not made by
it."""
import os
import struct

from crc32c import crc32c


def root(kind, chunk_blocks, blocks, pages):
    header = b"RMTMANIF" + struct.pack("<IIIIQQ", 1, 64, kind, chunk_blocks, blocks, len(pages) // 32) + bytes(16)
    header += struct.pack("<I", crc32c(pages))
    return header + struct.pack("<I", crc32c(header)) + pages


details = b'{"name":"before the migration"}'
disk = root(1, 4096, 600 * 4096 + 5, bytes(range(32)) + bytes(32) + bytes(range(32, 64)))
memory = root(2, 128, 300 * 128, bytes(range(64, 96)) + bytes(range(96, 128)))
vmstate = root(2, 128, 3, bytes(range(128, 160)))
body = details + disk + memory + vmstate
header = b"RMTSNAPS" + struct.pack("<IIIIIIQ", 1, 64, len(details), len(disk), len(memory), len(vmstate), 8193) + bytes(16)
header += struct.pack("<I", crc32c(body))

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "snapshot_v1.bin"), "wb") as out:
    out.write(header + struct.pack("<I", crc32c(header)) + body)
