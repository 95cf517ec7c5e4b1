"""Heat that spreads over a plate, computed by a program that may be killed at any moment and goes on where it was.

    python3 heat.py DIRECTORY STEPS [MTBF]

Prints at the end a hash of the temperatures, which does not depend on how often it was killed. With an MTBF, in seconds, it
kills itself at random, once in that time on average.
"""

import hashlib
import os
import random
import signal
import sys
import time

import numpy

from ropewalk.checkpoint import Advisor, Store

directory, steps = sys.argv[1], int(sys.argv[2])
mtbf = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0

with Store(directory) as store, Advisor(os.path.join(directory, "journal"), mtbf=mtbf, save=0.002) as advisor:
    plate, step = numpy.zeros((100, 100)), 0
    plate[0] = 100.0
    restored = store.restore()
    if restored:
        plate, step = numpy.load(restored.folder / "plate.npy"), restored.step
        advisor.restored()
    die_at = time.monotonic() + random.expovariate(1 / mtbf) if mtbf else float("inf")
    while step < steps:
        middle = plate[1:-1, 1:-1]
        around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
        plate[1:-1, 1:-1] = middle + 0.2 * (around - 4 * middle)
        step += 1
        if time.monotonic() > die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if advisor.step_end():
            advisor.save(store, step, lambda folder: numpy.save(folder / "plate.npy", plate))

print(hashlib.sha256(plate.tobytes()).hexdigest())
