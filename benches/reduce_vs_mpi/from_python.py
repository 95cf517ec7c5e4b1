"""Times reductions as Python programs call them: ropewalk's beside those of mpi4py and of PyTorch over Gloo.

`python from_python.py --short-waits short_waits.so` prints a table in Markdown. The Python that runs it has ropewalk,
mpi4py, MPICH (`pip install mpich`) and PyTorch; `short_waits.so` is compiled of `short_waits.c` beside this file by `gcc
-O2 -shared -fPIC`. Contestants run in turns, with results that are checked. A time is the longest of all ranks that get
a result, from the call just after a barrier; the median of a job counts, and of these the median of all jobs. The better
of two ways counts for MPI.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict

import numpy as np

SIZES = {8: "8 B", 1 << 10: "1 KiB", 1 << 20: "1 MiB", 64 << 20: "64 MiB"}
CALLS = ["reduce", "allreduce"]
RANKS = [2, 4]
WARM_UPS = 2
JOB_SECONDS_MAX = 300


def rounds(length: int) -> int:
    return 101 if length <= 64 << 10 else 9


class Ropewalk:
    """A contribution is copied, or is memory of the job, and survives its rank."""

    def __init__(self, lends: bool) -> None:
        import ropewalk

        self.job, self.lends = ropewalk.Job(), lends
        self.rank, self.size, self.barrier = self.job.rank, self.job.size, self.job.barrier

    def prepare(self, mine):
        self.mine = mine
        if self.lends:
            self.mine = self.job.buffer(mine.shape)
            np.asarray(self.mine)[:] = mine

    def reduce(self):
        return self.job.reduce(self.mine).value

    def allreduce(self):
        return self.job.allreduce(self.mine).value

    def longest(self, seconds):
        return self.job.allreduce(seconds, "max").value

    def end(self):
        self.job.finalize()


class Mpi:
    """Vectors are used again, and lost with their rank."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.MPI, self.world = MPI, MPI.COMM_WORLD
        self.rank, self.size, self.barrier = self.world.rank, self.world.size, self.world.Barrier

    def prepare(self, mine):
        self.mine, self.result = mine, np.zeros_like(mine)

    def reduce(self):
        self.world.Reduce(self.mine, self.result, root=0)
        return self.result if self.rank == 0 else None

    def allreduce(self):
        self.world.Allreduce(self.mine, self.result)
        return self.result

    def longest(self, seconds):
        return self.world.allreduce(seconds, np.maximum)

    def end(self):
        pass


class Gloo:
    """The result takes the place of the contribution."""

    def __init__(self) -> None:
        import torch
        import torch.distributed

        torch.set_num_threads(1)
        self.torch, self.world = torch, torch.distributed
        self.world.init_process_group("gloo")
        self.rank, self.size, self.barrier = self.world.get_rank(), self.world.get_world_size(), self.world.barrier

    def prepare(self, mine):
        self.vector = self.torch.from_numpy(mine.copy())

    def reduce(self):
        self.world.reduce(self.vector, 0)
        return self.vector.numpy() if self.rank == 0 else None

    def allreduce(self):
        self.world.all_reduce(self.vector)
        return self.vector.numpy()

    def longest(self, seconds):
        longest = self.torch.from_numpy(seconds)
        self.world.all_reduce(longest, self.world.ReduceOp.MAX)
        return longest.numpy()

    def end(self):
        self.world.destroy_process_group()


KINDS = {"ropewalk": lambda: Ropewalk(False), "buffer": lambda: Ropewalk(True), "mpi": Mpi, "gloo": Gloo}


def rank(kind: str) -> None:
    """One rank of a job, of which rank 0 prints lines "CALL BYTES SECONDS"."""
    world = KINDS[kind]()
    for length in SIZES:
        mine = np.arange(length // 8) % 7 + float(world.rank)
        expected = world.size * (np.arange(length // 8) % 7) + sum(range(world.size))
        for name in CALLS:
            call, elapsed = getattr(world, name), []
            for _ in range(WARM_UPS + rounds(length)):
                world.prepare(mine)
                world.barrier()
                began = time.perf_counter()
                result = call()
                elapsed.append(0.0 if result is None else time.perf_counter() - began)
                assert result is None or np.array_equal(result, expected), f"{name} of {length} bytes is wrong"
            median = statistics.median(world.longest(np.array(elapsed[WARM_UPS:])))
            if world.rank == 0:
                print(name, length, median, flush=True)
    world.end()


def ways(options: argparse.Namespace):
    """Who is measured: a name, the words before `-n`, more variables, and the kind."""
    hydra = [os.path.join(os.path.dirname(sys.executable), "mpiexec.hydra")]
    open_mpi = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    debian = {"MPI4PY_MPIABI": "openmpi", "MPI4PY_LIBMPI": "libmpi.so.40"}
    ours = [options.ropewalk, "run"]
    return [
        ("ropewalk", ours, {}, "ropewalk"),
        ("ropewalk, `job.buffer`", ours, {}, "buffer"),
        ("mpi4py, MPICH", hydra, {}, "mpi"),
        ("mpi4py, MPICH", hydra, {"LD_PRELOAD": options.short_waits}, "mpi"),
        ("mpi4py, Open MPI", open_mpi, debian, "mpi"),
        ("mpi4py, Open MPI", [*open_mpi, "--mca", "mpi_yield_when_idle", "1"], debian, "mpi"),
        ("PyTorch, Gloo", ours, {}, "gloo"),
    ]


def measure(words, variables, kind, ranks):
    command = [*words, "-n", str(ranks), sys.executable, os.path.abspath(__file__), "--rank", kind]
    environment = {**os.environ, **variables}
    output = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=JOB_SECONDS_MAX
    ).stdout
    lines = [line.split() for line in output.splitlines() if line.startswith(tuple(CALLS))]
    return {(ranks, name, int(length)): float(seconds) for name, length, seconds in lines}


def written(seconds: float) -> str:
    if seconds < 1e-4:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--ropewalk", default="ropewalk", help="the command")
    parser.add_argument("--short-waits", help="the preloaded library", required="--rank" not in sys.argv)
    parser.add_argument("--turns", type=int, default=3, help="the jobs of each contestant")
    options = parser.parse_args()
    if options.rank:
        rank(options.rank)
        return
    # By contestant and point, the medians of each way.
    found = defaultdict(lambda: defaultdict(list))
    for turn in range(options.turns):
        for ranks in RANKS:
            for way, (name, words, variables, kind) in enumerate(ways(options)):
                print(f"==> turn {turn}, {ranks} ranks, {name}", file=sys.stderr)
                for point, seconds in measure(words, variables, kind, ranks).items():
                    found[name][(way, *point)].append(seconds)
    names = list(found)
    print("| ranks, call | " + " | ".join(["", *SIZES.values()]) + " |")
    print("|---|---|" + "---|" * len(SIZES))
    for ranks in RANKS:
        for call in CALLS:
            best = {}
            for name in names:
                for size in SIZES:
                    points = [times for point, times in found[name].items() if point[1:] == (ranks, call, size)]
                    best[name, size] = min(statistics.median(times) for times in points)
            for name in names:
                label = f"{ranks}, {call}" if name == names[0] else ""
                cells = []
                for size in SIZES:
                    is_best = best[name, size] == min(best[other, size] for other in names)
                    mark = "**" if is_best else ""
                    cells.append(f"{mark}{written(best[name, size])}{mark}")
                print(f"| {label} | {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
