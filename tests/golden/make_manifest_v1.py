#!/usr/bin/python3
"""Writes manifest_v1.bin from docs/formats/manifest.md alone, so that it checks the C++ code and is not made by it."""
import os
import struct

from crc32c import crc32c

BLOCKS = 600 * 4096 + 5  # 601 chunks, three pages
pages = bytes(range(32)) + bytes(32) + bytes(range(32, 64))
header = b"RMTMANIF" + struct.pack("<IIIIQQ", 1, 64, 1, 4096, BLOCKS, 3) + bytes(16) + struct.pack("<I", crc32c(pages))

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "manifest_v1.bin"), "wb") as out:
    out.write(header + struct.pack("<I", crc32c(header)) + pages)
