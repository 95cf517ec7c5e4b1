"""Heat that spreads over a plate of which each rank has some rows; it continues where it was when a rank is killed.

    ropewalk run -n 4 --checkpoint saves --on-failure restart=20 python3 plate_ranks.py STEPS

Rank 0 prints at the end a hash of all temperatures, which does not depend on kills, nor on the number of ranks.
"""

import hashlib
import sys

import numpy

import ropewalk
from ropewalk import checkpoint  # 1

with ropewalk.Job() as job:
    steps, rows = int(sys.argv[1]), 200 // job.size
    # A row of the neighbour above, the own rows, a row of the neighbour below.
    u = numpy.zeros((rows + 2, 200))
    u[0 if job.rank else 1], u[:, 0] = 0.0 if job.rank else 100.0, 50.0
    first, last = (2 if job.rank == 0 else 1), (rows if job.rank == job.size - 1 else rows + 1)
    edges = numpy.zeros((job.size, 2, 200))

    with checkpoint.resume("saves", u=u) as run:  # 2
        for step in run.steps(steps):  # 3: it was `for step in range(steps):`
            job.allgather(numpy.stack([u[1], u[-2]])[None], out=edges)
            u[0], u[-1] = edges[job.rank - 1, 1], edges[(job.rank + 1) % job.size, 0]
            old = u[first - 1 : last + 1].copy()
            around = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
            u[first:last, 1:-1] += 0.2 * (around - 4.0 * old[1:-1, 1:-1])

    plate = job.gather(u[1:-1]).value
    if job.rank == 0:
        print(hashlib.sha256(plate.tobytes()).hexdigest(), flush=True)
