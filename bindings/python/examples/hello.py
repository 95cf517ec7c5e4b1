"""Sums arrays of all ranks although one is killed: ropewalk run -n 4 --on-failure continue python hello.py"""

import os, signal
import numpy, ropewalk

with ropewalk.Job() as job:
    reduction = job.ireduce(numpy.full(1000, job.rank + 1.0), root=0)
    if job.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)  # The contribution is safe from the call on.
    outcome = reduction.result()
    if job.rank == 0:
        print(f"sum {outcome.value[0]:g} of {outcome.receipt.contributions} ranks, lost {outcome.receipt.lost}")
