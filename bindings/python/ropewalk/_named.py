"""State that is saved and restored by name."""

from __future__ import annotations

import ctypes
import os
import warnings
from numbers import Integral, Real
from typing import Any, Iterator, NamedTuple, Optional, Union

from ropewalk._library import PathLike, RunOptionsC, call, library, unsigned

Scalar = Union[bool, int, float, str]


class RunOptions(NamedTuple):
    """Options of :func:`resume`; what is left out is as the launcher says, or as stated."""

    #: Who saves, and how many save together.
    rank: Optional[int] = None
    ranks: Optional[int] = None
    #: The name of this start of a job of several ranks: the same for all ranks, and another one at each start.
    start: Optional[str] = None
    #: The time in seconds that ranks wait for each other when they restore.
    patience: float = 60.0
    #: The mean time between failures in seconds: a guess from which learning starts, unless it is known.
    mtbf: float = 0.0
    mtbf_is_known: bool = False
    #: How many complete saves are kept, at least two.
    keep: int = 2


class Partitioned(NamedTuple):
    """The rows of an array that this rank has; :func:`partitioned` makes it."""

    array: Any


def partitioned(array: Any) -> Partitioned:
    """Marks an array for :func:`resume` of which each rank has some rows, along the first axis: rank 0 has the first
    ones, rank 1 the next.

    Such an array is restored on any number of ranks, and with any numbers of rows, into the new part that each rank has
    allocated. The rows of all ranks together have to be as many as were saved, and the other axes have to be the same. A
    rank may have no rows. All ranks mark the same arrays."""
    return Partitioned(array)


class _Array(NamedTuple):
    """An array and its memory, which stays where it is as long as ``view`` lives."""

    owner: Any
    view: Optional[memoryview]
    address: int
    element: str
    item: int
    shape: tuple[int, ...]
    is_partitioned: bool = False


def resume(directory: Optional[PathLike] = None, options: RunOptions = RunOptions(), /, **state: Any) -> Run:
    """Restores the named state from the newest save in the directory, if there is one, and returns the :class:`Run`
    that saves it.

    Arrays are NumPy arrays or other objects with a writable buffer, contiguous in C's order, of any shape and element type
    but Python objects. They are restored in place: change them in place too (``u[:] = ..``), as a name that is bound to
    another array is not followed. Scalars are ``int``, ``float``, ``bool`` or ``str``: read and set ``run["t"]``.

    In a job of several ranks an array is the rank's own, unless :func:`partitioned` marks it as rows of a larger one:
    ``resume("saves", u=partitioned(u), v=v)``. A job with partitioned arrays may go on with another number of ranks.
    Scalars and other arrays are restored then if all ranks had saved the same, and are an error if not.

    Under ``ropewalk run --checkpoint DIR`` the directory is DIR, and each rank saves its own state; all ranks make the
    same calls. :class:`MismatchError` if the save has other names, element types or shapes, on any rank, or cannot be
    distributed over these ranks."""
    return Run(directory, options, state)


class Run:
    """A loop whose state is saved when the advisor says so, and at its end.

    A save copies the arrays, for which it keeps as much memory again, and goes on: a thread hashes the copy and brings it
    to the disk. After a crash in that time the save before is restored. A save that fails is warned of, and the run goes on
    without it; at the end its error is raised."""

    def __init__(self, directory: Optional[PathLike], options: RunOptions, state: dict[str, Any]) -> None:
        self._handle = ctypes.c_void_p()
        self._arrays: dict[str, _Array] = {}
        self._values: dict[str, Scalar] = {}
        if (options.rank is None) != (options.ranks is None):
            raise ValueError("rank and ranks belong together: give both, or none")
        made = RunOptionsC(
            ctypes.sizeof(RunOptionsC),
            unsigned("rank", options.rank or 0, 32),
            unsigned("ranks", 0 if options.ranks is None else options.ranks, 32),
            None if options.start is None else os.fsencode(options.start),
            options.patience,
            options.mtbf,
            options.mtbf_is_known,
            unsigned("keep", options.keep, 32),
        )
        for name, value in state.items():
            if isinstance(value, Partitioned):
                self._arrays[name] = _partitioned(name, value.array)
            elif isinstance(value, (str, bool, Integral, Real)):
                self._values[name] = _plain(value)
            else:
                self._arrays[name] = _memory(name, value)
        path = None if directory is None else os.fsencode(directory)
        call("resume", path, ctypes.byref(made), ctypes.byref(self._handle))
        try:
            self._name_all()
            step = ctypes.c_uint64()
            call("restore", self._handle, ctypes.byref(step))
            self._step = step.value
            for name in self._values:
                self._values[name] = self._saved(name)
        except BaseException:
            call("close", self._handle, False)
            self._handle = ctypes.c_void_p()
            raise

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Optional[type], error: Optional[BaseException], *_: object) -> None:
        # Somebody who ends the program on purpose is no failure of it.
        is_exit = isinstance(error, SystemExit) and error.code in (None, 0)
        self.close(finished=kind is None or is_exit or isinstance(error, KeyboardInterrupt))

    def close(self, finished: bool = True) -> None:
        """Waits for the save under way, and ends the run: it is done or was stopped on purpose, or has failed."""
        if self._handle:
            handle, self._handle = self._handle, ctypes.c_void_p()
            call("close", handle, finished)

    @property
    def step(self) -> int:
        """How many steps are done."""
        return self._step

    def steps(self, steps: int) -> Iterator[int]:
        """The numbers of the steps that are left of so many, from 0. Saves after a step if the advisor says so, and after
        the last. A loop that is left by ``break`` saves no more, and the step in which it was left is not done."""
        steps, step = unsigned("steps", steps, 64), ctypes.c_uint64()
        while True:
            call("step", self._open(), steps, ctypes.byref(step))
            self._step = step.value
            failure = library.rw_save_error(self._handle)
            if failure is not None:
                warnings.warn(f"not saved: {failure.decode(errors='replace')}", RuntimeWarning, stacklevel=2)
            if step.value >= steps:
                return
            yield step.value

    def __getitem__(self, name: str) -> Any:
        """A scalar as it was set or restored last, or an array."""
        return self._arrays[name].owner if name in self._arrays else self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Sets a scalar, or the elements of an array."""
        if name in self._arrays:
            self._arrays[name].owner[...] = value
            return
        if name not in self._values:
            raise KeyError(f"{name} is not a part of the state: name it when the run begins")
        if not isinstance(value, (str, bool, Integral, Real)):
            raise TypeError(f"{name} has to be an int, a float, a bool or a str, not {type(value).__name__}")
        self._values[name] = _plain(value)
        self._put(name)

    def _open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise ValueError("the run is closed")
        return self._handle

    def _name_all(self) -> None:
        for name, array in self._arrays.items():
            shape = (ctypes.c_uint64 * len(array.shape))(*array.shape)
            element, length = array.element.encode(), len(array.shape)
            protect = "protect_partitioned" if array.is_partitioned else "protect"
            call(protect, self._handle, name.encode(), array.address, element, array.item, length, shape)
        for name in self._values:
            self._put(name)

    def _put(self, name: str) -> None:
        value = self._values[name]
        text = (value if isinstance(value, str) else repr(value)).encode()
        call("put", self._open(), name.encode(), type(value).__name__.encode(), text, len(text))

    def _saved(self, name: str) -> Scalar:
        kind, data, length = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
        call("get", self._handle, name.encode(), ctypes.byref(kind), ctypes.byref(data), ctypes.byref(length))
        text = ctypes.string_at(data, length.value).decode() if length.value else ""
        if kind.value == b"str":
            return text
        if kind.value == b"bool":
            return text == "True"
        return int(text) if kind.value == b"int" else float(text)


def _plain(value: Any) -> Scalar:
    """A scalar as one of Python's own types: that of NumPy's float64 is a subclass of float."""
    if isinstance(value, (str, bool)):
        return value if isinstance(value, bool) else str(value)
    return int(value) if isinstance(value, Integral) else float(value)


def _partitioned(name: str, value: Any) -> _Array:
    if isinstance(value, (str, bool, Integral, Real)):
        raise TypeError(f"{name} is a scalar, which cannot be partitioned: partitioned() is for arrays")
    array = _memory(name, value)
    if not array.shape:
        raise ValueError(f"{name} has no axis along which it could be partitioned")
    return array._replace(is_partitioned=True)


def _memory(name: str, value: Any) -> _Array:
    interface = getattr(value, "__array_interface__", None)
    # A scalar of NumPy has no items that one could set.
    if interface is not None and hasattr(value, "dtype") and hasattr(value, "__setitem__"):
        return _numpy(name, value, interface)
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(
            f"{name} has to be an array with a writable buffer, an int, a float, a bool or a str, "
            f"not {type(value).__name__}"
        ) from None
    _check(name, view.readonly, view.c_contiguous)
    kinds = {"f": "float", "d": "float", "?": "bool", "Z": "complex", **dict.fromkeys("bhilqn", "int")}
    kinds |= dict.fromkeys("cBHILQN", "uint")
    code = view.format.lstrip("@=")[:1]
    if code not in kinds or len(view.format) > 2:
        raise TypeError(f"{name} has elements of the format {view.format!r}, which cannot be saved")
    element = kinds[code] + ("" if code == "?" else str(8 * view.itemsize))
    address = ctypes.addressof((ctypes.c_char * view.nbytes).from_buffer(view)) if view.nbytes else 0
    return _Array(value, view, address, element, view.itemsize, tuple(view.shape or ()))


def _numpy(name: str, array: Any, interface: dict[str, Any]) -> _Array:
    address, readonly = interface["data"]
    _check(name, readonly, interface.get("strides") is None or array.size == 0)
    dtype = array.dtype
    if dtype.hasobject:
        raise TypeError(f"{name} holds Python objects, which cannot be saved: use an array of numbers or of bytes")
    if not dtype.isnative:
        raise TypeError(f"{name} has the byte order of another machine: convert it by astype(dtype.newbyteorder('='))")
    element = dtype.name if dtype.names is None else "".join(str(dtype.descr).split())
    return _Array(array, None, address, element, dtype.itemsize, array.shape)


def _check(name: str, readonly: bool, contiguous: bool) -> None:
    if readonly:
        raise ValueError(f"{name} cannot be written, and so not be restored in place: name a copy of it")
    if not contiguous:
        raise ValueError(
            f"{name} is not contiguous in C's order, as a slice or a transposed array: name the whole array, or make it "
            f"one by numpy.ascontiguousarray"
        )
