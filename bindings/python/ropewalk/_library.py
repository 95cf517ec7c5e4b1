"""The library ``librw_checkpoint.so``: its structures, functions and errors."""

import ctypes
import operator
import os
from pathlib import Path
from typing import Union

PathLike = Union[str, "os.PathLike[str]"]


class CheckpointError(Exception):
    """Something about checkpoints could not be done; those made before are as they were."""


class NoRoomError(CheckpointError):
    """The disk is full."""


class MismatchError(CheckpointError):
    """The saved state has other names, element types or shapes, or cannot be distributed over the ranks of this job.
    Neither the state nor the save was changed."""


_ERRORS = {2: NoRoomError, 3: MismatchError}


class AdvisorOptionsC(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("mtbf", ctypes.c_double),
        ("mtbf_is_known", ctypes.c_int),
        ("save", ctypes.c_double),
        ("restore", ctypes.c_double),
        ("limit", ctypes.c_double),
        ("steps", ctypes.c_uint64),
        ("fast_save", ctypes.c_double),
        ("fast_covers", ctypes.c_double),
    ]


class DecisionC(ctypes.Structure):
    _fields_ = [
        ("save", ctypes.c_int),
        ("level", ctypes.c_int),
        ("reason", ctypes.c_char_p),
        ("interval", ctypes.c_double),
        ("overhead", ctypes.c_double),
        ("mtbf", ctypes.c_double),
    ]


class StoreOptionsC(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("directory", ctypes.c_char_p),
        ("rank", ctypes.c_uint32),
        ("ranks", ctypes.c_uint32),
        ("in_place", ctypes.c_char_p),
        ("keep", ctypes.c_uint32),
        ("restarts_max", ctypes.c_uint32),
    ]


class RestoredC(ctypes.Structure):
    _fields_ = [
        ("found", ctypes.c_int),
        ("generation", ctypes.c_uint64),
        ("step", ctypes.c_uint64),
        ("folder", ctypes.c_char_p),
        ("quarantined", ctypes.c_uint32),
        ("stuck", ctypes.c_uint32),
    ]


class RunOptionsC(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("rank", ctypes.c_uint32),
        ("ranks", ctypes.c_uint32),
        ("start", ctypes.c_char_p),
        ("patience", ctypes.c_double),
        ("mtbf", ctypes.c_double),
        ("mtbf_is_known", ctypes.c_int),
        ("keep", ctypes.c_uint32),
    ]


def _load() -> ctypes.CDLL:
    named = os.environ.get("RW_CHECKPOINT_LIBRARY")
    beside = Path(__file__).with_name("librw_checkpoint.so")
    if named:
        path = named
    elif beside.exists():
        path = str(beside)
    else:
        path = "librw_checkpoint.so.0"
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"cannot load {path}: install the package with pip, or build the library with `cargo build --release -p "
            f"ropewalk-checkpoint-c` and name it in RW_CHECKPOINT_LIBRARY"
        ) from error
    pointer, number, text = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p
    for name, arguments in {
        "advisor_open": [ctypes.POINTER(AdvisorOptionsC), text, ctypes.POINTER(pointer)],
        "advisor_close": [pointer, ctypes.c_int],
        "step_end": [pointer, ctypes.POINTER(DecisionC)],
        "save_begin": [pointer, ctypes.c_int],
        "save_copied": [pointer, ctypes.c_int],
        "save_end": [pointer, ctypes.c_int],
        "save_failed": [pointer, ctypes.c_int],
        "failed": [pointer],
        "restored_end": [pointer],
        "remaining_steps": [pointer, number],
        "preempt": [pointer, ctypes.c_double],
        "store_open": [ctypes.POINTER(StoreOptionsC), ctypes.POINTER(pointer)],
        "store_close": [pointer],
        "store_restore": [pointer, ctypes.POINTER(RestoredC)],
        "store_restore_shared": [pointer, text, ctypes.c_double, ctypes.POINTER(RestoredC)],
        "store_begin": [pointer, number, ctypes.POINTER(pointer)],
        "save_level": [pointer, ctypes.c_int],
        "store_commit": [pointer, pointer],
        "store_abandon": [pointer, pointer],
        "store_retire": [pointer],
    }.items():
        function = getattr(library, f"rw_checkpoint_{name}")
        function.argtypes, function.restype = arguments, ctypes.c_int
    for name, arguments in {
        "resume": [text, ctypes.POINTER(RunOptionsC), ctypes.POINTER(pointer)],
        "protect": [pointer, text, pointer, text, ctypes.c_size_t, ctypes.c_uint32, ctypes.POINTER(number)],
        "protect_partitioned": [
            pointer, text, pointer, text, ctypes.c_size_t, ctypes.c_uint32, ctypes.POINTER(number)
        ],
        "put": [pointer, text, text, text, ctypes.c_size_t],
        "get": [pointer, text, ctypes.POINTER(text), ctypes.POINTER(pointer), ctypes.POINTER(ctypes.c_size_t)],
        "restore": [pointer, ctypes.POINTER(number)],
        "step": [pointer, number, ctypes.POINTER(number)],
        "close": [pointer, ctypes.c_int],
    }.items():
        function = getattr(library, f"rw_{name}")
        function.argtypes, function.restype = arguments, ctypes.c_int
    library.rw_save_error.argtypes, library.rw_save_error.restype = [pointer], text
    library.rw_checkpoint_error.restype = text
    library.rw_checkpoint_save_folder.argtypes = [pointer]
    library.rw_checkpoint_save_folder.restype = text
    library.rw_checkpoint_interval.argtypes = [ctypes.c_double, ctypes.c_double]
    library.rw_checkpoint_interval.restype = ctypes.c_double
    return library


library = _load()


def call(name: str, *arguments: object) -> None:
    """Calls a function of the library whose name follows ``rw_``, and raises its error."""
    status = getattr(library, f"rw_{name}")(*arguments)
    if status != 0:
        message = library.rw_checkpoint_error().decode(errors="replace")
        raise _ERRORS.get(status, CheckpointError)(message)


def unsigned(name: str, value: int, bits: int) -> int:
    """The value, if it has no more bits: ctypes would cut it."""
    number = operator.index(value)
    if not 0 <= number < 1 << bits:
        raise ValueError(f"{name} has to be from 0 to 2**{bits} - 1, not {value}")
    return number
