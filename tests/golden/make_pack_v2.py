#!/usr/bin/python3
"""Writes pack_v2.bin from docs/formats/pack.md (and, for one block, RFC 8878) alone, so that it checks the C++ code and is not made by it."""
import hashlib
import os
import struct

from crc32c import crc32c


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([0x80 | value & 0x7F])
        value >>= 7
    return out + bytes([value])


def with_crc(body: bytes) -> bytes:
    return body + struct.pack("<I", crc32c(body))


def digest(plain: bytes) -> bytes:
    blocks = [plain[i : i + 4096] for i in range(0, len(plain), 4096)]
    return hashlib.sha256(b"".join(hashlib.sha256(block).digest() for block in blocks)).digest()


def frame(number: int, stored: bytes, codec: int, plain: bytes) -> bytes:
    blocks = [plain[i : i + 4096] for i in range(0, len(plain), 4096)]
    prints = b"".join(hashlib.sha256(block).digest()[:16] for block in blocks)
    return varint(number) + varint(len(stored)) + bytes([len(blocks), codec]) + digest(plain) + prints


ID = bytes(range(0xA0, 0xB0))
PLAIN = bytes((i * 7 + i // 256) % 256 for i in range(2 * 4096))
SAME = b"R" * (3 * 4096)
# One zstd block of type RLE: magic, single segment with a size of two bytes (less 256), last block, the byte.
RLE = b"\x28\xb5\x2f\xfd\x60" + struct.pack("<H", len(SAME) - 256) + struct.pack("<I", len(SAME) << 3 | 1 << 1 | 1)[:3] + b"R"

# Frames 300 and 5, each as a folded step; then two literal blocks, 125 of zeros, one literal.
RECIPE = varint(2) + varint(600) + varint(2 * 295 - 1) + varint(2 << 1 | 1) + varint(0) + b"\0" + varint(125 << 1) + varint(3) + varint(1) + b"\2"
CHUNK = digest(PLAIN + bytes(125 * 4096) + SAME[:4096])

tail = varint(2) + frame(300, PLAIN, 0, PLAIN) + frame(5, RLE, 1, SAME) + varint(1) + CHUNK + varint(len(RECIPE)) + RECIPE
header = with_crc(b"RMTPACKH" + struct.pack("<II", 2, 64) + ID + bytes(28))
body = header + PLAIN + RLE
padding = bytes(-(len(body) + len(tail) + 64) % 4096)
before = body + tail + padding
sums = struct.pack("<QQII", len(body), len(tail), crc32c(tail), crc32c(before))
footer = with_crc(b"RMTPACKF" + struct.pack("<II", 2, 64) + ID + sums + bytes(4))

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pack_v2.bin"), "wb") as out:
    out.write(before + footer)
