"""The rate of this computer's time stamp counter, which is also what a processor emulated by QEMU reads.

The kernel in the emulated host measures that rate at boot against an emulated timer. On a busy computer the measurement came out
ten times too low, so an hour passed inside in six minutes and every time limit fired early. So we measure here and tell it.
"""

import ctypes
import mmap
import time

# rdtsc; shl rdx, 32; or rax, rdx; ret
READ_TSC = bytes.fromhex("0f31" "48c1e220" "4809d0" "c3")
ATTEMPTS = 20


def measure_khz(seconds=0.2):
    """Kilohertz, right to about 0.01 % also on a busy computer."""
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(READ_TSC)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(address)
        ticks_1, ns_1 = _moment(read)
        time.sleep(seconds)
        ticks_2, ns_2 = _moment(read)
    return round((ticks_2 - ticks_1) * 1_000_000 / (ns_2 - ns_1))


def _moment(read):
    """(ticks, nanoseconds) of one moment: of several tries the one that was interrupted least."""
    best = None
    for _ in range(ATTEMPTS):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        ticks = read()
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if best is None or after - before < best[0]:
            best = (after - before, ticks, (before + after) // 2)
    return best[1], best[2]
