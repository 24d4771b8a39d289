"""Counts in RAM and, with fsync, in a file. SIGUSR1: write both numbers, taken at one moment, into report."""

import os
import signal
import time

HOME = "/home/user"
asked = False


def ask(_signal, _frame):
    global asked
    asked = True


def report(count):
    in_file = int(os.pread(file, 32, 0))
    with open(f"{HOME}/report.new", "w", encoding="ascii") as out:
        out.write(f"{count} {in_file}\n")
    os.rename(f"{HOME}/report.new", f"{HOME}/report")


signal.signal(signal.SIGUSR1, ask)
file = os.open(f"{HOME}/count", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
count = 0
while True:
    count += 1
    os.pwrite(file, b"%d\n" % count, 0)
    os.fsync(file)
    if asked:
        asked = False
        report(count)
    time.sleep(0.02)
