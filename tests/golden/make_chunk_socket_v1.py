#!/usr/bin/python3
"""Writes chunk_socket_v1.bin from docs/formats/chunk_socket.md alone: one message of every kind, each behind its length (u32)."""
import os
import struct

HELLO, ASK, RETURNED = 1, 2, 3
WELCOME, ZEROS, DATA, CHUNK, FAILED, GIVE_BACK = 17, 18, 19, 20, 21, 22
VERSION = 1

name = b"debian-12"
held = [0, 3, 0x3FFFFF]
data = bytes(i % 251 for i in range(2 * 4096))
word = b"not_found"
text = b"no such block"

messages = [
    struct.pack("<IIII", HELLO, VERSION, len(name), len(held)) + name + struct.pack("<QQQ", *held),
    struct.pack("<IIQQ", ASK, 4096, 0x1122334455667788, 0x3FFFFFFFF),
    struct.pack("<IIQ", RETURNED, 0, 3),
    struct.pack("<IIQQ", WELCOME, VERSION, 1 << 20, 0x99AABBCCDDEEFF00),
    struct.pack("<IIQQQ", ZEROS, 0, 7, 4096, 100000),
    struct.pack("<IIQQQ", DATA, 0, 8, 64, 2) + data,
    struct.pack("<IIQQ", CHUNK, 0, 9, 5),
    struct.pack("<IIIIQ", FAILED, len(word), len(text), 0, 10) + word + text,
    struct.pack("<IIQ", GIVE_BACK, 0, 5),
]

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "chunk_socket_v1.bin"), "wb") as out:
    for message in messages:
        out.write(struct.pack("<I", len(message)) + message)
