"""Heat in a rod of which each rank has some cells. The job goes on where it was, also on another number of ranks.

    ropewalk run -n 4 --checkpoint saves python3 rod_ranks.py STEPS
    ropewalk run -n 3 --checkpoint saves python3 rod_ranks.py STEPS

Rank 0 prints at the end a hash of all temperatures, which depends neither on kills nor on the number of ranks.
"""

import hashlib
import sys

import numpy

import ropewalk
from ropewalk import checkpoint

with ropewalk.Job() as job:
    steps, cells = int(sys.argv[1]), 1000
    first, last = cells * job.rank // job.size, cells * (job.rank + 1) // job.size
    u = numpy.zeros(last - first)
    if job.rank == 0:
        u[0] = 100.0
    edges = numpy.zeros((job.size, 2))

    with checkpoint.resume("saves", u=checkpoint.partitioned(u), time=0.0) as run:
        begun = run.step
        for step in run.steps(steps):
            job.allgather(numpy.array([[u[0], u[-1]]]), out=edges)
            left = edges[job.rank - 1, 1] if job.rank > 0 else u[0]
            right = edges[job.rank + 1, 0] if job.rank < job.size - 1 else u[-1]
            wide = numpy.concatenate(([left], u, [right]))
            u += 0.25 * (wide[:-2] - 2.0 * u + wide[2:])
            run["time"] += 0.25

    rod = numpy.zeros(cells)
    rod[first:last] = u
    rod = job.reduce(rod).value
    if job.rank == 0:
        print(f"{steps - begun} steps on {job.size} ranks: {hashlib.sha256(rod.tobytes()).hexdigest()}", flush=True)
