"""Groups of ranks and their collective calls."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, Union

from ropewalk import _native
from ropewalk._reduction import Outcome, Receipt, Reduction

if TYPE_CHECKING:
    from typing_extensions import Buffer as BufferProtocol, Unpack

Buffer = _native.Buffer


class Array(Protocol):
    """A NumPy array, which has the buffer protocol; the type checker knows that from Python 3.12 on only."""

    def __array__(self, *arguments: Any, **named: Any) -> Any: ...


Contribution = Union["BufferProtocol", Array]
"""An object that a collective call takes."""

OperationName = Literal[
    "band", "bor", "bxor", "fsum", "land", "lor", "lxor", "max", "maxloc", "min", "minloc", "prod", "sum"
]
"""The names of operations: those of MPI's predefined operations, and that of ``math.fsum``."""

Operation = Union[OperationName, Callable[[Any, Any], Any]]


class Options(TypedDict, total=False):
    """The choices of a call. All ranks make the same, apart from ``timeout`` and those of protection."""

    #: ``"any"`` (default): contributions are combined as they come. ``"ordered"``: the result has the same bits in
    #: each run, whichever ranks are lost after their calls.
    order: Literal["any", "ordered"]
    #: ``"fail"`` (default): the loss of a rank whose contribution nobody has ends the call with
    #: :exc:`~ropewalk.errors.LostError`. ``"exclude"``: the result is that of the others, and ``receipt.excluded``
    #: names the rank.
    on_loss: Literal["exclude", "fail"]
    #: ``"fail"`` (default): the loss of the root is an error. ``"lowest"``, or a rank: this one gets the result.
    on_root_loss: Union[Literal["fail", "lowest"], int]
    #: ``"process"`` (default): a contribution survives its process, from the call on. ``"none"``: it does not.
    protection: Literal["none", "process"]
    #: So many other hosts copy the contribution, which then survives the loss of its host; 0 by default.
    copies: int
    #: With ``copies``: a contribution counts only when the copies are stored.
    acknowledged: bool
    #: Seconds from this rank's call after which the call fails on all ranks; no limit by default.
    timeout: Union[float, None]
    #: A number that is the same on all ranks and used once in a group. Without one the calls of the ranks belong
    #: together in the order in which each makes them, which takes calls from one thread.
    id: int


class Group:
    """Ranks that make collective calls together.

    All ranks of the group call, in the same order, with contributions of the same shape and type. A contribution is an
    object with the buffer protocol whose elements lie in C order: a NumPy array (others than in C order are copied), an
    ``array.array``, a ``memoryview``. Where NumPy is loaded, a tensor with ``__dlpack__`` in the processor's memory
    counts as a NumPy array. Elements are ``bool``, integers of 8 to 64 bits, floats of 16 to 64 bits, complex
    numbers, ``bfloat16`` of ml_dtypes, and structures of a value and an index. It is copied in the call, and may be
    changed after that. A :class:`~ropewalk.Buffer` is not copied.

    Under ``ropewalk run`` a contribution is safe when a call returns: this process may then be killed, and the result
    is still that of all ranks.

    Calls without ``i`` wait for the outcome. Those with ``i`` return a :class:`~ropewalk.Reduction`. ``out`` is a
    writable buffer of the result's type and length, which may be the contribution. :class:`~ropewalk.Options` has the
    other choices. All raise :exc:`~ropewalk.errors.ReduceError` if there is no result, ``TypeError`` or ``ValueError``
    if an argument makes no sense.
    """

    __slots__ = ("_group", "_ranks")

    def __init__(self, group: _native.Group) -> None:
        self._group = group
        self._ranks = tuple(group.ranks())

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the group, in order. Those that were lost stay in it."""
        return self._ranks

    def subgroup(self, ranks: Sequence[int]) -> Group:
        """A group of some ranks of this one. Nothing is sent; every member names the same ranks in the same order."""
        return Group(self._group.subgroup(ranks))

    def without(self, ranks: Sequence[int]) -> Group:
        """The group without these ranks, as the survivors of a loss go on: ``group.without(receipt.excluded)``.

        Nothing is sent; all that go on have to name the same ranks, as ``receipt.excluded`` and the ``ranks`` of a
        ``LostError`` are. A rank that was lost after it contributed is named by a later call. Calls of a group without lost ranks are as fast as before
        the loss; those of a group with lost ranks go by the scheduler.
        """
        return Group(self._group.without(ranks))

    def split(self, color: int | None, key: int = 0, **options: Unpack[Options]) -> Group | None:
        """The group of those that name the same color, ordered by their keys; ``None`` without a color.

        All ranks call, and it waits for them.
        """
        group = self._group.split(color, key, _given(options))
        return None if group is None else Group(group)

    def reduce(
        self,
        data: Contribution,
        op: Operation = "sum",
        root: int = 0,
        *,
        out: Contribution | None = None,
        **options: Unpack[Options],
    ) -> Outcome:
        """Combines the contributions element by element; ``root`` gets the result, of the contribution's shape.

        ``op`` is a name, or a function of two arrays that returns a third one of the same shape and type. A function
        must be associative, and commutative unless ``order="ordered"``. It gets whole contributions, which then go from
        rank to rank in one piece, and runs in a thread of its own: a name is faster.

        The names are those of MPI, and ``"fsum"``:

        - ``"sum"``, ``"prod"``: numbers. Integers wrap around; floats of 16 bits are rounded after each combination.
        - ``"fsum"``: ``float32`` and ``float64``. The sum is exact, as that of ``math.fsum``, and rounded once: it has
          the same bits in each order and on any number of ranks. Its elements take 280 bytes each on their way.
        - ``"min"``, ``"max"``: all but complex numbers. The outcome is NaN if one is NaN.
        - ``"land"``, ``"lor"``, ``"lxor"``: ``bool`` and integers, which are true unless they are 0. The outcome is of
          the same type, 0 or 1 (``numpy.logical_and`` and so on give ``bool``).
        - ``"band"``, ``"bor"``, ``"bxor"``: ``bool`` and integers, bit by bit (``numpy.bitwise_and`` and so on).
        - ``"minloc"``, ``"maxloc"``: structures of two fields without a gap between them, the value (an integer or a
          float of 32 or 64 bits) and its index (``int32`` or ``int64``): ``numpy.dtype([("value", "f8"), ("index",
          "i8")])``. Of equal values the one with the lowest index counts; NaN is the smallest and the largest value,
          as for ``numpy.argmin`` and ``numpy.argmax``.
        """
        return self.ireduce(data, op, root, out=out, **options).result()

    def ireduce(
        self,
        data: Contribution,
        op: Operation = "sum",
        root: int = 0,
        *,
        out: Contribution | None = None,
        **options: Unpack[Options],
    ) -> Reduction:
        """Begins what :meth:`reduce` does."""
        return self._begin("reduce", data, op, root, out, options)

    def allreduce(
        self, data: Contribution, op: Operation = "sum", *, out: Contribution | None = None, **options: Unpack[Options]
    ) -> Outcome:
        """As :meth:`reduce`; all ranks get the result, each the same bits."""
        return self.iallreduce(data, op, out=out, **options).result()

    def iallreduce(
        self, data: Contribution, op: Operation = "sum", *, out: Contribution | None = None, **options: Unpack[Options]
    ) -> Reduction:
        """Begins what :meth:`allreduce` does."""
        return self._begin("allreduce", data, op, 0, out, options)

    def reduce_scatter(
        self,
        data: Contribution,
        op: OperationName = "sum",
        *,
        out: Contribution | None = None,
        **options: Unpack[Options],
    ) -> Outcome:
        """As :meth:`reduce`; the result is cut into equal blocks, one for each rank in order.

        If the length of the first axis is a multiple of the number of ranks, a block is a part of it: of shape ``(12,
        5)`` each of 4 ranks gets ``(3, 5)``. Otherwise a block has one axis.
        """
        return self.ireduce_scatter(data, op, out=out, **options).result()

    def ireduce_scatter(
        self,
        data: Contribution,
        op: OperationName = "sum",
        *,
        out: Contribution | None = None,
        **options: Unpack[Options],
    ) -> Reduction:
        """Begins what :meth:`reduce_scatter` does."""
        return self._begin("reduce_scatter", data, op, 0, out, options)

    def broadcast(
        self, data: Contribution, root: int = 0, *, out: Contribution | None = None, **options: Unpack[Options]
    ) -> Outcome:
        """All ranks get the contribution of ``root``. The others contribute only its shape and type."""
        return self.ibroadcast(data, root, out=out, **options).result()

    def ibroadcast(
        self, data: Contribution, root: int = 0, *, out: Contribution | None = None, **options: Unpack[Options]
    ) -> Reduction:
        """Begins what :meth:`broadcast` does."""
        return self._begin("broadcast", data, None, root, out, options)

    def gather(
        self, data: Contribution, root: int = 0, *, out: Contribution | None = None, **options: Unpack[Options]
    ) -> Outcome:
        """``root`` gets the contributions of all ranks, stacked along a new first axis in the order of the ranks.

        With ``on_loss="exclude"`` a contribution that is lost is zeros, and ``receipt.excluded`` names its rank.
        """
        return self.igather(data, root, out=out, **options).result()

    def igather(
        self, data: Contribution, root: int = 0, *, out: Contribution | None = None, **options: Unpack[Options]
    ) -> Reduction:
        """Begins what :meth:`gather` does."""
        return self._begin("gather", data, None, root, out, options)

    def allgather(self, data: Contribution, *, out: Contribution | None = None, **options: Unpack[Options]) -> Outcome:
        """As :meth:`gather`; all ranks get the result."""
        return self.iallgather(data, out=out, **options).result()

    def iallgather(
        self, data: Contribution, *, out: Contribution | None = None, **options: Unpack[Options]
    ) -> Reduction:
        """Begins what :meth:`allgather` does."""
        return self._begin("allgather", data, None, 0, out, options)

    def barrier(self, **options: Unpack[Options]) -> Receipt:
        """Waits until all ranks have called.

        The receipt is the same on all of them: with ``on_loss="exclude"`` they agree on who is lost.
        """
        return self.ibarrier(**options).result().receipt

    def ibarrier(self, **options: Unpack[Options]) -> Reduction:
        """Begins what :meth:`barrier` does; the outcome has no value."""
        return Reduction(self._group.barrier(_given(options)), memoryview)

    def broadcast_object(self, value: Any = None, root: int = 0, **options: Unpack[Options]) -> Any:
        """All ranks get the object of ``root``, which pickle carries; the ranks must trust each other."""
        is_root = self._is_root(root)
        data = pickle.dumps(value) if is_root else b""
        outcome = Reduction(self._group.broadcast_bytes(data, root, _given(options)), bytes).result()
        return value if is_root else pickle.loads(outcome.value)

    def _is_root(self, root: int) -> bool:
        return root == self._group.rank()

    def _begin(
        self,
        kind: str,
        data: Contribution,
        op: Operation | None,
        root: int,
        out: Contribution | None,
        options: Options,
    ) -> Reduction:
        numpy = sys.modules.get("numpy")
        array: Any = data
        if numpy is not None and not isinstance(data, numpy.ndarray) and hasattr(data, "__dlpack__"):
            # A tensor of another library in the memory of the processor; another device is an error.
            array = numpy.from_dlpack(data)
        array_type = None
        is_bf16 = is_scalar = False
        if isinstance(data, Buffer):
            array_type = None if isinstance(data.dtype, str) else data.dtype
            is_bf16 = array_type is not None and is_bfloat16(array_type)
        elif numpy is not None and isinstance(array, (numpy.ndarray, numpy.generic)):
            array_type = array.dtype
            if isinstance(array, numpy.generic) or not array.flags.c_contiguous:
                array = numpy.array(array, order="C")
            is_bf16 = is_bfloat16(array_type)
            if array.ndim == 0:
                # The extension wants an axis.
                array = array.reshape(1)
                is_scalar = True
            if is_bf16:
                # NumPy shows no buffer of this type.
                array = array.view(numpy.uint16)

        def finish(memory: _native.Memory) -> Any:
            if out is not None:
                target: Any = out
                if numpy is not None and isinstance(out, numpy.ndarray):
                    if not out.flags.c_contiguous:
                        raise ValueError("the elements of out must lie one after the other in C order")
                    target = out.reshape(-1)
                    target = target.view(numpy.uint16) if is_bfloat16(out.dtype) else target
                memory.copy_into(target, is_bf16)
                return out
            value = _shown(memory, array_type)
            return value.reshape(value.shape[:-1]) if is_scalar else value

        operation = _on_memory(op, array_type) if callable(op) else op
        return Reduction(self._group.begin(kind, (array, is_bf16), operation, root, _given(options)), finish)


def is_bfloat16(dtype: Any) -> bool:
    """True for the type of ml_dtypes, of which NumPy shows no buffer."""
    return dtype.type.__name__ == "bfloat16"  # type: ignore[no-any-return]


def _given(options: Options) -> dict[str, Any] | None:
    return dict(options) if options else None


def _shown(memory: _native.Memory, array_type: Any) -> Any:
    """The memory as the caller's kind of array."""
    if array_type is None:
        return memoryview(memory)
    numpy = sys.modules["numpy"]
    array = numpy.asarray(memory)
    return array.view(array_type) if array.dtype != array_type else array


def _on_memory(
    function: Callable[[Any, Any], Any], array_type: Any
) -> Callable[[_native.Memory, _native.Memory], BufferProtocol]:
    """The function of two arrays as one of two memories."""

    def combine(left: _native.Memory, right: _native.Memory) -> BufferProtocol:
        combined = function(_shown(left, array_type), _shown(right, array_type))
        if array_type is None:
            return memoryview(combined)
        numpy = sys.modules["numpy"]
        # An exception says so if elements would become others.
        combined = numpy.asarray(combined).astype(array_type, order="C", casting="same_kind", copy=False)
        return combined.reshape(-1).view(numpy.uint8)  # type: ignore[no-any-return]

    return combine
