"""Runs in the guest: sleeps 1 ms again and again and keeps the longest time it was away. `echo > /dev/shm/reset` makes it write that
to /dev/shm/gap (ms) and begin anew."""
import os
import time

longest = 0.0
before = time.monotonic()
while True:
    time.sleep(0.001)
    now = time.monotonic()
    longest = max(longest, now - before)
    before = now
    if os.path.exists("/dev/shm/reset"):
        with open("/dev/shm/gap.new", "w", encoding="ascii") as file:
            file.write(f"{longest * 1000:.3f}")
        os.rename("/dev/shm/gap.new", "/dev/shm/gap")
        os.unlink("/dev/shm/reset")
        longest = 0.0
        before = time.monotonic()
