"""Computes pi by throwing darts, until the standard error is small enough; ranks may be killed at any moment.

    ropewalk run -n 4 --on-failure continue python monte_carlo.py [ERROR [VICTIM]]
"""

import os
import signal
import sys

import numpy as np
import ropewalk

DARTS = 200_000
wanted = float(sys.argv[1]) if len(sys.argv) > 1 else 1e-3
victim = int(sys.argv[2]) if len(sys.argv) > 2 else None

with ropewalk.Job() as job:
    # Streams of random numbers that do not overlap.
    random = np.random.default_rng(np.random.SeedSequence(2026).spawn(job.size)[job.rank])
    hits = darts = rounds = 0
    while True:
        inside = np.count_nonzero((random.random((DARTS, 2)) ** 2).sum(1) < 1)
        reduction = job.iallreduce(np.array([inside, DARTS]), on_loss="exclude")
        if job.rank == victim and rounds == 2:
            # These darts count: they were contributed.
            os.kill(os.getpid(), signal.SIGKILL)
        outcome = reduction.result()
        hits, darts, rounds = hits + outcome.value[0], darts + outcome.value[1], rounds + 1
        share = hits / darts
        error = 4 * np.sqrt(share * (1 - share) / darts)
        if error < wanted:
            break
    if outcome.receipt.root == job.rank:
        print(f"pi = {4 * share:.5f} +- {error:.5f} from {darts} darts in {rounds} rounds")
