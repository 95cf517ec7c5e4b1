"""Times `reduce` and `allreduce` as `ropewalk bench reduce` does: ropewalk run -n 4 python bench_reduce.py [BYTES ..]

Each line has the median, the shortest and the longest of 31 rounds after 2 that do not count. A round begins with a
barrier, and its time is the longest of all ranks.
"""

import sys
import time

import numpy as np
import ropewalk

ROUNDS, WARM_UPS = 31, 2

with ropewalk.Job() as job:
    for length in map(int, sys.argv[1:] or ["8", str(64 << 20)]):
        mine = np.arange(length // 8) + float(job.rank)
        for name, call in [("reduce", job.reduce), ("allreduce", job.allreduce)]:
            seconds = []
            for _ in range(WARM_UPS + ROUNDS):
                job.barrier()
                began = time.perf_counter()
                outcome = call(mine)
                seconds.append(time.perf_counter() - began)
            if outcome.value is not None:
                expected = job.size * np.arange(length // 8) + sum(range(job.size))
                assert np.array_equal(outcome.value, expected), name
            longest = np.sort(job.allreduce(np.array(seconds[WARM_UPS:]), "max").value) * 1e6
            if job.rank == 0:
                low, median, high = longest[0], longest[ROUNDS // 2], longest[-1]
                print(f"{name} of {length} bytes: {median:.1f} us ({low:.1f} to {high:.1f})", flush=True)
