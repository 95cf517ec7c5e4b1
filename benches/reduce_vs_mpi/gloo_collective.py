"""Times a collective of Gloo, as PyTorch calls it: `gloo_collective.py reduce|allreduce|broadcast SIZE...`.

Prints "SIZE NANOSECONDS" for each size in bytes, as `mpi_collective.c` does: the time of the rank that gets its result
last, from its own call just after a barrier, after two calls that are not counted. The root is rank 0.
"""

import sys
import time

import torch
import torch.distributed as dist

WARM_UPS, ROOT = 2, 0

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
name, sizes = sys.argv[1], sys.argv[2:]
call = {
    "reduce": lambda vector: dist.reduce(vector, ROOT),
    "allreduce": dist.all_reduce,
    "broadcast": lambda vector: dist.broadcast(vector, ROOT),
}[name]
receives = rank == ROOT if name == "reduce" else name == "allreduce" or rank != ROOT
factor = ROOT + 1 if name == "broadcast" else size * (size + 1) // 2
for length in map(int, sizes):
    base = torch.arange(length // 4, dtype=torch.float32) % 7
    elapsed = 0.0
    for _ in range(WARM_UPS + 1):
        vector = base * (rank + 1)
        dist.barrier()
        start = time.perf_counter()
        call(vector)
        elapsed = time.perf_counter() - start if receives else 0.0
    assert not receives or torch.equal(vector, base * factor), f"rank {rank}: the result is wrong"
    longest = torch.tensor([elapsed], dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    if rank == ROOT:
        print(length, round(longest.item() * 1e9), flush=True)
dist.destroy_process_group()
