"""Runs inside the guest: disk_guest.py FOLDER writes files for ever, and prints "name sha256" of each once it and its folder are synced.
Old ones are deleted again, which is said too."""

import hashlib
import os
import random
import sys

KEPT = 20


def load(folder):
    os.makedirs(folder, exist_ok=True)
    directory = os.open(folder, os.O_RDONLY)
    number = 0
    while True:
        data = os.urandom(random.choice([100, 5000, 70000, 600000]))
        name = f"{folder}/{number}"
        with open(name + ".new", "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.rename(name + ".new", name)
        os.fsync(directory)
        print(name, hashlib.sha256(data).hexdigest(), flush=True)
        if number >= KEPT and number % 5 == 0:
            print(f"{folder}/{number - KEPT}", "deleted", flush=True)  # said first: it may then be there or not
            os.unlink(f"{folder}/{number - KEPT}")
        number += 1


if __name__ == "__main__":
    load(sys.argv[1])
