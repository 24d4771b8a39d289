#!/usr/bin/python3
"""Writes overlay_log_v1.bin from docs/formats/overlay.md alone, so that it checks the C++ code and is not made by it."""
import os
import struct

from crc32c import crc32c


def header() -> bytes:
    body = b"RMTOVLOG" + struct.pack("<IIQQQQQI", 1, 64, 0x1122334455667788, 262144, 1, 8192, 1, 0)
    return body + struct.pack("<I", crc32c(body))


def record(sequence: int, kind: int, first: int, count: int) -> bytes:
    body = struct.pack("<IQQQ", kind, sequence, first, count)
    return struct.pack("<I", crc32c(body)) + body


DATA, ZERO, FREEZE, SEAL, LOWER_SYNCED = 1, 2, 3, 4, 5
RECORDS = [(DATA, 0, 4096), (ZERO, 100, 28), (LOWER_SYNCED, 0x99, 0), (DATA, 262143, 1), (FREEZE, 0, 0), (DATA, 100, 1), (SEAL, 0, 0)]

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "overlay_log_v1.bin"), "wb") as out:
    out.write(header().ljust(8192, b"\0"))
    for i, (kind, first, count) in enumerate(RECORDS):
        out.write(record(i + 1, kind, first, count))
