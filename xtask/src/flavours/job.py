"""What a job of MPI does from Python, by the first argument: `meet` (all add up), or `pool` (workers that one rank
spawns square numbers)."""

import sys

from mpi4py import MPI
from mpi4py.futures import MPIPoolExecutor


def square(number):
    return number * number


def main():
    world = MPI.COMM_WORLD
    library = MPI.Get_library_version().splitlines()[0].replace("\t", " ")
    if sys.argv[1] == "pool":
        with MPIPoolExecutor(max_workers=2) as pool:
            assert list(pool.map(square, range(8))) == [number * number for number in range(8)]
        print(f"pooled {world.size}: {library}")
        return
    assert world.allreduce(world.rank) == world.size * (world.size - 1) // 2
    if world.rank == 0:
        print(f"met {world.size}: {library}")


if __name__ == "__main__":
    main()
