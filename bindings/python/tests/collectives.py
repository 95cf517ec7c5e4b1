"""Every collective with every type, in a job of 4 ranks: ropewalk run -n 4 python collectives.py"""

import array
import asyncio
import functools
import itertools
import math
import sys
import threading
import time

import ml_dtypes
import numpy as np

import ropewalk
from ropewalk import errors

NUMBERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]
COMPLEX = [np.complex64, np.complex128]
FOLDS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
LOGICAL = {"land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor}
BITWISE = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}


def contribution(rank, shape, dtype):
    """Small integers, so that every order of combination gives the same in every type."""
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3 + rank % 2 + 1).astype(dtype)


def folded(op, shape, dtype, size):
    total = contribution(0, shape, dtype)
    for rank in range(1, size):
        total = FOLDS[op](total, contribution(rank, shape, dtype))
    return total


def same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape, (found, expected)
    assert np.array_equal(found, expected), (found, expected)


def types_and_shapes(job):
    """Reductions agree with NumPy's for each type, operation and shape, short and lent."""
    for dtype in NUMBERS + FLOATS + COMPLEX:
        for op in ["sum", "prod"] if dtype in COMPLEX else FOLDS:
            for shape in [(), (0,), (3, 5), (40_000, 4)]:
                expected = folded(op, shape, dtype, job.size)
                same(job.allreduce(contribution(job.rank, shape, dtype), op).value, expected)
    mine = np.array([job.rank == 1, True, False])
    same(job.allreduce(mine, "max").value, np.array([True, True, False]))
    same(job.allreduce(mine, "min").value, np.array([False, True, False]))


def logical_and_bitwise(job):
    """Truth values and bits are combined as NumPy does, in the type of the contributions."""
    for dtype in [*NUMBERS, np.bool]:
        for length in [5, 20_000]:
            # Each rank has bits of its own, and zeros at other places.
            of = [((np.arange(length) * (rank + 3)) % 7 % 4).astype(dtype) for rank in range(job.size)]
            for op, function in (LOGICAL | BITWISE).items():
                same(job.allreduce(of[job.rank], op).value, functools.reduce(function, of).astype(dtype))


def with_location(job):
    """The smallest and the largest values come with the index of the rank that has them; the lowest one of several."""
    values = [np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64]
    for value_type, index_type in itertools.product(values, [np.int32, np.int64]):
        dtype = np.dtype([("depth", value_type), ("rank", index_type)])
        for length in [5, 20_000]:
            of = [((np.arange(length) * (rank + 3)) % 5).astype(value_type) for rank in range(job.size)]
            mine = np.empty(length, dtype)
            mine["depth"], mine["rank"] = of[job.rank], job.rank
            for op, place in [("minloc", np.argmin), ("maxloc", np.argmax)]:
                expected = np.empty(length, dtype)
                expected["rank"] = place(of, axis=0)
                expected["depth"] = np.take_along_axis(np.array(of), expected["rank"][None].astype(int), 0)[0]
                same(job.allreduce(mine, op).value, expected)
    dtype = np.dtype([("value", "f8"), ("index", "i4")])
    value = [1.0, np.nan, -0.0, np.nan][job.rank]
    mine = np.array((value, 3 - job.rank), dtype)
    found = job.allreduce(mine, "minloc").value
    assert found.shape == () and np.isnan(found["value"]) and found["index"] == 0, found
    found = np.zeros(1, dtype)
    assert job.allreduce(mine.reshape(1), "maxloc", out=found).value is found
    assert np.isnan(found["value"][0]) and found["index"][0] == 0, found
    same(job.broadcast(mine, root=2).value, np.array((-0.0, 1), dtype))
    plain = [np.float64, "f4,f4", "f8,>i8", "f8,i4,i4", np.dtype([("value", "f8"), ("index", "i4")], align=True)]
    for dtype in plain:
        try:
            job.allreduce(np.zeros(2, dtype), "minloc")
        except TypeError as error:
            assert "minloc" in str(error) or "without a gap" in str(error), error
        else:
            raise AssertionError(f"{dtype} has no index without a gap")
    try:
        job.allreduce(np.zeros(2), "land")
    except TypeError as error:
        assert '"fsum", "max", "min", "prod", "sum"' in str(error), error
    else:
        raise AssertionError("floats have no truth")


def exact_sums(job):
    """Exact sums are those of math.fsum, whichever terms cancel out."""
    for length in [5, 3000]:
        random = np.random.default_rng(length)
        of = random.standard_normal((job.size, length)) * 10.0 ** random.integers(-200, 200, (job.size, length))
        of[1] -= of[0]
        of[3, ::2] = -of[2, ::2]
        expected = np.array([math.fsum(terms) for terms in of.T])
        assert length < 100 or not np.array_equal(of.sum(axis=0), expected), "any sum is exact"
        same(job.allreduce(of[job.rank], "fsum").value, expected)
        same(job.allreduce(of[job.rank], "fsum", order="ordered").value, expected)
    value = [2.0**60, -(2.0**-20), 1.0, -(2.0**60)][job.rank]
    same(job.reduce_scatter(np.full((8, 2), value, np.float32), "fsum").value, np.full((2, 2), 1 - 2.0**-20, np.float32))
    outcome = job.reduce(np.array(value), "fsum", root=1)
    assert (outcome.value is not None) == (job.rank == 1)
    if job.rank == 1:
        same(outcome.value, np.array(1 - 2.0**-20))
    try:
        job.allreduce(np.zeros(2, np.int32), "fsum")
    except TypeError as error:
        assert '"fsum" is not defined' in str(error), error
    else:
        raise AssertionError("sums of integers are exact")


def kinds(job):
    """Each collective gives each rank its part, in the shape that is promised."""
    size, rank = job.size, job.rank
    for shape in [(4, 3), (4000, 30)]:
        mine = contribution(rank, shape, np.float64)
        all_of_them = np.stack([contribution(other, shape, np.float64) for other in range(size)])
        total = folded("sum", shape, np.float64, size)
        outcome = job.reduce(mine, root=2)
        assert (outcome.value is not None) == (rank == 2)
        assert outcome.receipt.contributions == size and outcome.receipt.root == 2
        load = outcome.receipt.scheduler
        assert (load.received > 0) == (load.received_bytes > 0) and (load.sent > 0) == (load.sent_bytes > 0)
        if rank == 2:
            same(outcome.value, total)
        gathered = job.gather(mine, root=1).value
        assert (gathered is not None) == (rank == 1)
        if rank == 1:
            same(gathered, all_of_them)
        same(job.allgather(mine).value, all_of_them)
        same(job.broadcast(mine, root=3).value, all_of_them[3])
        part = shape[0] // size
        same(job.reduce_scatter(mine).value, total[rank * part : (rank + 1) * part])
    # A first axis that cannot be cut, of a vector that can.
    flat = job.reduce_scatter(np.ones((3, 4))).value
    same(flat, np.full(3, float(size)))
    assert job.barrier().contributions == size
    assert job.broadcast_object({"steps": rank}, root=1) == {"steps": 1}
    half = job.split(rank % 2, key=-rank)
    assert half.ranks == ((2, 0) if rank % 2 == 0 else (3, 1))
    assert half.allreduce(np.array([rank])).value[0] == (2 if rank % 2 == 0 else 4)
    pair = job.subgroup([0, 3])
    if rank in pair.ranks:
        assert pair.allreduce(np.array([1])).value[0] == 2
    rest = job.without([1])
    if rank != 1:
        assert rest.ranks == (0, 2, 3)
        assert rest.allreduce(np.array([1])).value[0] == 3


def buffers(job):
    """Anything with the buffer protocol is reduced, also in place, and what cannot be is refused before the call."""
    found = job.allreduce(array.array("d", [1.5, job.rank])).value
    assert isinstance(found, memoryview) and found.format == "d" and found.tolist() == [6.0, 6.0]
    assert job.allreduce(memoryview(b"\x01\x02"), "max").value.tolist() == [1, 2]
    x = np.full((300, 100), float(job.rank))
    assert job.allreduce(x, out=x).value is x
    same(x, np.full((300, 100), 6.0))
    strided = np.full((6, 4), 1)[::2, ::3]
    same(job.allreduce(strided).value, np.full((3, 2), 4))
    same(job.allreduce(np.float32(2)).value, np.array(8, np.float32))
    long = array.array("B", bytes(8))
    job.allreduce(bytes([job.rank] * 8), "max", out=long)
    assert long.tobytes() == bytes([3] * 8)

    class Tensor:
        """What other libraries have: no buffer, but DLPack."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    same(job.allreduce(Tensor(np.full((2, 2), 0.5))).value, np.full((2, 2), 2.0))
    value = job.allreduce(np.ones(3)).value
    value += 1
    same(value, np.full(3, 5.0))
    for wrong, kind in [
        (lambda: job.allreduce([1, 2]), TypeError),
        (lambda: job.allreduce(1.5), TypeError),
        (lambda: job.allreduce(np.array(["text"])), TypeError),
        (lambda: job.allreduce(np.ones(2, ">f8")), TypeError),
        (lambda: job.allreduce(np.ones(2), "mean"), ValueError),
        (lambda: job.allreduce(np.ones(2, complex), "max"), TypeError),
        (lambda: job.allreduce(np.ones(2), oder="any"), TypeError),
        (lambda: job.allreduce(np.ones(2), order="sorted"), ValueError),
        (lambda: job.reduce_scatter(np.ones(4), max), TypeError),
    ]:
        try:
            wrong()
        except kind as error:
            assert not isinstance(error, errors.ReduceError)
        else:
            raise AssertionError("it is not refused")
    try:
        job.allreduce(np.ones(2), out=np.ones(3))
    except ValueError as error:
        assert "16 bytes of float64" in str(error), error
    else:
        raise AssertionError("a result is put where it has no room")


def lent_buffers(job):
    """Calls take buffers, which come back; nobody has them meanwhile, and no call takes one that somebody sees."""
    place = np.dtype([("depth", "f4"), ("rank", "i8")])
    operations = {np.float64: "sum", np.int16: "min", np.complex64: "sum", np.bool: "max", ml_dtypes.bfloat16: "prod"}
    for kind, shape in itertools.product([*operations, place], [(), (0,), 7, (300, 50)]):
        dtype, op = np.dtype(kind), operations.get(kind, "maxloc")
        buffer = job.buffer(shape, kind)
        view = np.asarray(buffer).view(dtype)
        assert view.shape == (shape if isinstance(shape, tuple) else (shape,)) == buffer.shape, buffer.shape
        assert buffer.dtype == view.dtype == dtype and not view.tobytes().strip(b"\0")
        of = [contribution(rank, view.shape, np.int8).astype(dtype) for rank in range(job.size)]
        view[...] = of[job.rank]
        del view
        # Ranks 1 and 3 have the largest values.
        expected = functools.reduce(FOLDS[op], of) if op in FOLDS else of[1]
        same(job.allreduce(buffer, op).value, expected)
        outcome = job.reduce(buffer, op, root=2)
        assert (outcome.value is None) == (job.rank != 2)
        same(job.allgather(buffer).value, np.stack(of))
        # These copy it.
        same(job.broadcast(buffer, root=1).value, of[1])
        assert job.allreduce(buffer, op, out=buffer).value is buffer
        same(np.asarray(buffer).view(dtype), expected)
    mine = np.full(20_000, job.rank + 1.0)
    buffer = job.buffer(20_000)
    view = np.asarray(buffer)
    address = view.ctypes.data
    view[:] = mine
    try:
        job.iallreduce(buffer)
        raise AssertionError("a buffer with a view is taken")
    except BufferError as error:
        assert "has views" in str(error), error
    del view
    if job.rank == 3:
        time.sleep(0.3)
    reduction = job.iallreduce(buffer)
    if job.rank != 3:
        taken = [lambda: memoryview(buffer), lambda: np.asarray(buffer), lambda: job.iallreduce(buffer)]
        for take in [*taken, lambda: job.ibroadcast(buffer)]:
            try:
                take()
                raise AssertionError("a call has it, and somebody else too")
            except BufferError as error:
                assert "a call under way" in str(error), error
        assert not reduction.done()
    assert reduction.result().value[0] == 10
    view = np.asarray(buffer)
    same(view, mine)
    assert view.ctypes.data == address, "it was copied"
    view[:] = 1
    del view
    assert job.allreduce(buffer, "fsum").value[0] == job.allreduce(buffer, np.add).value[-1] == 4
    # A call that is refused takes nothing, and one that fails gives it back.
    for wrong, kind in [(lambda: job.allreduce(buffer, "land"), TypeError), (lambda: job.reduce(buffer, root=9), errors.UsageError)]:
        try:
            wrong()
            raise AssertionError("it is not refused")
        except kind:
            assert memoryview(buffer)[19_999] == 1
    job.iallreduce(buffer)
    try:
        memoryview(buffer)
        raise AssertionError("a call that nobody asks has it")
    except BufferError as error:
        assert "is gone" in str(error), error
    for shape, kind in [(-1, OverflowError), ((1 << 40, 1 << 40), ValueError), (1 << 60, errors.ResourceError)]:
        try:
            job.buffer(shape, "u1")
            raise AssertionError("there is so much memory")
        except kind:
            pass
    # Letters of the module array are types without NumPy.
    numpy = sys.modules.pop("numpy")
    buffer = job.buffer([2, 3], "i")
    memoryview(buffer)[1, 2] = job.rank
    total = job.allreduce(buffer).value
    sys.modules["numpy"] = numpy
    assert type(total) is memoryview and total.tolist() == [[0, 0, 0], [0, 0, 6]] and total.format == "i"


def functions(job):
    """Functions in Python combine; an exception ends the call on all ranks, and names the one where it was raised."""
    mine = contribution(job.rank, (20_000,), np.float64)
    same(job.allreduce(mine, np.add).value, folded("sum", (20_000,), np.float64, job.size))
    first = job.allreduce(np.array([job.rank]), lambda left, right: left, order="ordered").value
    same(first, np.array([0]))
    narrow = contribution(job.rank, (5,), ml_dtypes.bfloat16)
    same(job.allreduce(narrow, np.maximum).value, folded("max", (5,), ml_dtypes.bfloat16, job.size))
    bytes_of_all = job.allreduce(bytes([job.rank]), lambda left, right: bytes([left[0] | right[0]])).value
    assert bytes_of_all.tolist() == [3]

    def fails(left, right):
        raise ArithmeticError("seven")

    def grows(left, right):
        return np.concatenate([left, right])

    for function, reason in [(fails, "ArithmeticError: seven"), (grows, "returned 32 bytes for vectors of 16")]:
        try:
            job.allreduce(np.ones(2), function)
        except errors.OperationError as error:
            assert reason in str(error) and error.rank in range(job.size), error
        else:
            raise AssertionError("it worked")


def futures(job):
    """Calls go on while Python does other work, and can be waited for by threads and event loops."""
    late = job.rank == 0
    # Nobody can have a result before rank 0 has called.
    if late:
        time.sleep(0.3)
    reduction = job.iallreduce(np.array([job.rank]))
    if not late:
        assert not reduction.done()
        while not reduction.is_protected():
            time.sleep(0.001)
        try:
            reduction.result(timeout=0.01)
        except TimeoutError as error:
            assert not isinstance(error, errors.ReduceError)
        else:
            raise AssertionError("there is a result without rank 0")
    assert reduction.result(60).value[0] == 6
    assert reduction.is_protected() and not job.iallreduce(np.array([1]), protection="none").is_protected()
    assert reduction.done() and reduction.result() is reduction.result() and reduction.exception() is None

    async def both():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticker = asyncio.create_task(tick())
        if late:
            await asyncio.sleep(0.3)
        first, second = job.iallreduce(np.array([1])), job.iallgather(np.array([job.rank]))
        outcomes = await asyncio.gather(_awaited(first), _awaited(second))
        ticker.cancel()
        assert ticks > 10, ticks
        return [outcome.value.tolist() for outcome in outcomes]

    assert asyncio.run(both()) == [[4], [[0], [1], [2], [3]]]
    # Other threads of Python run while one waits.
    stop, counted = threading.Event(), []
    counter = threading.Thread(target=lambda: [counted.append(1) or time.sleep(0.01) for _ in iter(stop.is_set, True)])
    counter.start()
    if late:
        time.sleep(0.3)
    job.barrier()
    stop.set()
    counter.join()
    assert len(counted) > 10, len(counted)


async def _awaited(reduction):
    return await reduction


def failures(job):
    """Errors have the ranks that they are about."""
    try:
        job.allreduce(np.ones(3 if job.rank == 2 else 2))
    except errors.MismatchError as error:
        assert error.rank in range(job.size) and error.host is None, error
    else:
        raise AssertionError("vectors of several lengths are summed")
    try:
        job.reduce(np.ones(2), root=9)
    except errors.UsageError as error:
        assert error.rank == 9
    else:
        raise AssertionError("a root that there is none")
    if job.rank == 1:
        time.sleep(1)
    try:
        job.allreduce(np.ones(2), timeout=0.3)
    except errors.TimeoutError as error:
        assert error.ranks == (1,), error
    else:
        raise AssertionError("rank 1 came in time")
    if job.rank == 1:
        time.sleep(1)
    reduction = job.iallreduce(np.ones(2))
    if job.rank == 2:
        time.sleep(0.3)
        reduction.cancel()
    try:
        reduction.result(60)
    except errors.CancelledError as error:
        assert error.rank == 2 and error.ranks == (1,), error
    else:
        raise AssertionError("rank 2 cancelled in time")


with ropewalk.Job() as job:
    assert job.ranks == tuple(range(4)) and job.size == 4
    for test in [types_and_shapes, logical_and_bitwise, with_location, exact_sums, kinds, buffers, lent_buffers, functions, futures, failures]:
        began = time.monotonic()
        test(job)
        job.barrier()
        if job.rank == 0:
            print(f"{test.__name__}: ok, {time.monotonic() - began:.1f} s", flush=True)
