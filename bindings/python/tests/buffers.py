"""Calls that take buffers: ropewalk run -n 2 -launcher fork -hosts h1,h2 python buffers.py buffer|array|kill

With `buffer` and `array` the ranks contribute 64 MiB so, and each prints its memory at most, in multiples of that; with
`kill` the last rank is killed after its call.
"""

import os
import re
import signal
import sys
from pathlib import Path

import numpy

import ropewalk

ELEMENTS = 8 << 20


def peak() -> int:
    """The bytes that this process has had in memory at most."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


with ropewalk.Job() as job:
    job.barrier()
    before = peak()
    buffer = job.buffer(ELEMENTS)
    numpy.asarray(buffer)[:] = job.rank + 1
    reduction = job.ireduce(numpy.asarray(buffer) if sys.argv[1] == "array" else buffer)
    if sys.argv[1] == "kill" and job.rank == job.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    outcome = reduction.result()
    if outcome.value is None:
        print(f"memory {(peak() - before) / (8 * ELEMENTS):.2f}", flush=True)
    else:
        expected = job.size * (job.size + 1) / 2
        print(f"sum {(outcome.value == expected).all()} of {outcome.receipt.contributions}", flush=True)
