"""Times a collective of Gloo, as PyTorch calls it.

`gloo_collective.py [--rounds N] [--late-ms MS] [--compute-ms MS] [--at-once K] COLLECTIVE SIZE...` takes and prints what
`mpi_collective.c` beside it does: a line "SIZE NANOSECONDS" for each round of each size in bytes. COLLECTIVE is reduce, allreduce or
broadcast; the root is rank 0.
"""

import argparse
import time

import torch
import torch.distributed as dist

WARM_UPS, ROOT, LATE_RANK = 2, 0, 4

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=1)
parser.add_argument("--late-ms", type=int, default=0)
parser.add_argument("--compute-ms", type=int, default=0)
parser.add_argument("--at-once", type=int, default=1)
parser.add_argument("collective", choices=["reduce", "allreduce", "broadcast"])
parser.add_argument("sizes", type=int, nargs="+")
words = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
name, late = words.collective, words.late_ms / 1000
call = {
    "reduce": lambda vector: dist.reduce(vector, ROOT, async_op=True),
    "allreduce": lambda vector: dist.all_reduce(vector, async_op=True),
    "broadcast": lambda vector: dist.broadcast(vector, ROOT, async_op=True),
}[name]
receives = rank == ROOT if name == "reduce" else name == "allreduce" or rank != ROOT
factor = ROOT + 1 if name == "broadcast" else size * (size + 1) // 2
for length in words.sizes:
    base = torch.arange(length // 4, dtype=torch.float32) % 7
    elapsed = []
    for _ in range(WARM_UPS + words.rounds):
        vectors = [base * (rank + 1) for _ in range(words.at_once)]
        dist.barrier()
        start = time.perf_counter() + late
        if rank == LATE_RANK:
            time.sleep(late)
        calls = [call(vector) for vector in vectors]
        until = time.perf_counter() + words.compute_ms / 1000
        while time.perf_counter() < until:
            pass
        for work in calls:
            work.wait()
        elapsed.append(time.perf_counter() - start if receives else 0.0)
    for vector in vectors:
        assert not receives or torch.equal(vector, base * factor), f"rank {rank}: the result is wrong"
    longest = torch.tensor(elapsed[WARM_UPS:], dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    if rank == ROOT:
        for seconds in longest.tolist():
            print(length, round(seconds * 1e9), flush=True)
dist.destroy_process_group()
