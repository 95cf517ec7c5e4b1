"""Saves the state of long computations, so that failures cost least.

Arrays and scalars by name, restored in place where a run begins again:

    from ropewalk import checkpoint

    with checkpoint.resume("saves", u=u, v=v) as run:
        for step in run.steps(1000):
            compute(u, v)

In a job of several ranks, ``u=checkpoint.partitioned(u)`` names the rows that a rank has of a larger array: the job may
go on with another number of ranks.

Programs that write files of their own have a :class:`Store` and an :class:`Advisor`:

    with Store("saves") as store, Advisor("saves/journal") as advisor:
        restored = store.restore()
        step = 0
        if restored:
            state, step = numpy.load(restored.folder / "state.npy"), restored.step
            advisor.restored()
        while step < steps:
            compute(state)
            step += 1
            if advisor.step_end():
                advisor.save(store, step, lambda folder: numpy.save(folder / "state.npy", state))

It is a thin layer over the library ``librw_checkpoint.so``, which the installed package contains; the variable
``RW_CHECKPOINT_LIBRARY`` names another one. All times are in seconds.
"""

import ctypes
import math
import os
import warnings
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from ropewalk._library import (
    AdvisorOptionsC,
    CheckpointError,
    DecisionC,
    MismatchError,
    NoRoomError,
    PathLike,
    RestoredC,
    StoreOptionsC,
    call,
    library,
    unsigned,
)
from ropewalk._named import Partitioned, Run, RunOptions, partitioned, resume

__all__ = [
    "FAST",
    "FULL",
    "Advisor",
    "CheckpointError",
    "Decision",
    "MismatchError",
    "NoRoomError",
    "Partitioned",
    "Restored",
    "Run",
    "RunOptions",
    "Store",
    "interval",
    "partitioned",
    "resume",
]

FAST, FULL = 0, 1

# Tracebacks name the module that programs import them from.
for _error in (CheckpointError, MismatchError, NoRoomError):
    _error.__module__ = __name__


class Decision(NamedTuple):
    """The advice at the end of a step. It is true if a save is due."""

    save: bool
    level: int
    reason: str
    #: The best compute time between two saves.
    interval: float
    #: By which part of its compute time the run is expected to become longer.
    overhead: float
    #: The mean time between failures that is believed in.
    mtbf: float

    def __bool__(self) -> bool:
        return self.save


class Restored(NamedTuple):
    """The save to start from."""

    generation: int
    step: int
    folder: Path
    #: How many torn or newer saves were put aside.
    quarantined: int


def interval(save: float, mtbf: float) -> float:
    """The best compute time between two saves if one could save at any moment."""
    found = float(library.rw_checkpoint_interval(save, mtbf))
    if math.isnan(found):
        raise ValueError(f"save and mtbf have to be positive numbers of seconds, not {save} and {mtbf}")
    return found


class Store:
    """The checkpoints of a program, or of one rank of it, in generations below a directory."""

    def __init__(
        self,
        directory: Optional[PathLike] = None,
        keep: int = 2,
        restarts_max: int = 0,
        *,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        """By default in the directory that ``ropewalk run --checkpoint`` gives. There has to be room on the disk for one more
        generation than are kept: the oldest is removed when the newest exists. Of ``ranks`` that save together each has a
        store with its own ``rank``; all open and restore theirs before the first saves, and save equally often."""
        rank, ranks = unsigned("rank", rank, 32), unsigned("ranks", ranks, 32)
        if rank >= ranks:
            raise ValueError(f"rank has to be below ranks, not {rank} of {ranks}")
        keep, restarts_max = unsigned("keep", keep, 32), unsigned("restarts_max", restarts_max, 32)
        if directory is None and not os.environ.get("ROPEWALK_CHECKPOINT_DIR"):
            raise ValueError(
                "no directory was given for the store: name one, as in Store(\"saves\"), or start the program by "
                "`ropewalk run --checkpoint DIR`"
            )
        path = None if directory is None else os.fsencode(directory)
        options = StoreOptionsC(ctypes.sizeof(StoreOptionsC), path, rank, ranks, None, keep, restarts_max)
        self._ranks = ranks
        self._handle = ctypes.c_void_p()
        call("checkpoint_store_open", ctypes.byref(options), ctypes.byref(self._handle))

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the use of the store."""
        if self._handle:
            call("checkpoint_store_close", self._handle)
            self._handle = ctypes.c_void_p()

    def restore(self, start: Optional[str] = None, patience: float = 60.0) -> Optional[Restored]:
        """The newest generation that is whole; newer and torn ones are put aside. To be called once, before any save. It
        fails while another process saves as the same rank; ``ropewalk checkpoints DIR`` looks beside it.

        Several ranks agree on it through files of the directory, which all have to see, and wait for each other so many
        seconds. ``start`` is the same text for all of them, and another one at each start of the job; ``ropewalk run
        --checkpoint`` gives one."""
        found = RestoredC()
        if self._ranks == 1:
            call("checkpoint_store_restore", self._handle, ctypes.byref(found))
        else:
            start = start or os.environ.get("ROPEWALK_CHECKPOINT_START")
            if not start:
                raise ValueError(
                    "ranks that restore together need a start: a text that is the same for all of them, and another one "
                    "at each start of the job"
                )
            call("checkpoint_store_restore_shared", self._handle, os.fsencode(start), patience, ctypes.byref(found))
        if not found.found:
            return None
        return Restored(found.generation, found.step, Path(os.fsdecode(found.folder)), found.quarantined)

    def save(self, step: int, write: Callable[[Path], object], level: int = FULL) -> None:
        """Saves what ``write`` puts into the folder that it is given, and removes the oldest generations. Under ``ropewalk
        run --partner`` another host copies saves of level ``FULL``."""
        step = unsigned("step", step, 64)
        save = ctypes.c_void_p()
        call("checkpoint_store_begin", self._handle, step, ctypes.byref(save))
        try:
            call("checkpoint_save_level", save, level)
            write(Path(os.fsdecode(library.rw_checkpoint_save_folder(save))))
        except BaseException:
            call("checkpoint_store_abandon", self._handle, save)
            raise
        call("checkpoint_store_commit", self._handle, save)
        call("checkpoint_store_retire", self._handle)


def _is_on_purpose(error: Optional[BaseException]) -> bool:
    """True if somebody ends the program, which is no failure of it."""
    is_exit = isinstance(error, SystemExit) and error.code in (None, 0)
    return is_exit or isinstance(error, KeyboardInterrupt)


class Advisor:
    """Says at the end of each step whether to save, and learns from what happens.

    As a context it takes an exception for a failure, and everything else for the end of the run: so also ^C
    (``KeyboardInterrupt``) and ``sys.exit()`` without an error, by which somebody ends it on purpose.
    """

    def __init__(
        self,
        journal: Optional[PathLike] = None,
        *,
        mtbf: float = 0.0,
        mtbf_is_known: bool = False,
        save: float = 0.0,
        restore: float = 0.0,
        limit: float = 0.0,
        steps: int = 0,
        fast_save: float = 0.0,
        fast_covers: float = 0.0,
    ) -> None:
        """An argument of 0 has its default. In the file ``journal`` it remembers what it learned for the next start;
        by default where ``ropewalk run --checkpoint`` says, or nowhere. ``mtbf`` is a guess of the mean time between
        failures, from which learning starts, unless ``mtbf_is_known``; by default that of ``ropewalk run``, or 5
        years."""
        steps = unsigned("steps", steps, 64)
        options = AdvisorOptionsC(
            ctypes.sizeof(AdvisorOptionsC), mtbf, mtbf_is_known, save, restore, limit, steps, fast_save, fast_covers
        )
        path = None if journal is None else os.fsencode(journal)
        self._handle = ctypes.c_void_p()
        self._level = FULL
        call("checkpoint_advisor_open", ctypes.byref(options), path, ctypes.byref(self._handle))

    def __enter__(self) -> "Advisor":
        return self

    def __exit__(self, kind: Optional[type], error: Optional[BaseException], *_: object) -> None:
        self.close(finished=kind is None or _is_on_purpose(error))

    def close(self, finished: bool = True) -> None:
        """Ends the run, which is done or was stopped on purpose, or has failed."""
        if self._handle:
            handle, self._handle = self._handle, ctypes.c_void_p()
            call("checkpoint_advisor_close", handle, finished)

    def step_end(self) -> Decision:
        """A time step is over: whether to save now."""
        found = DecisionC()
        call("checkpoint_step_end", self._handle, ctypes.byref(found))
        self._level = found.level
        return Decision(
            bool(found.save), found.level, found.reason.decode(), found.interval, found.overhead, found.mtbf
        )

    def save(self, store: Store, step: int, write: Callable[[Path], object]) -> bool:
        """Saves at the level of the last decision, and measures how long that takes. A save that fails is warned of, and the
        run goes on without it."""
        level = self._level
        self.save_begin(level)
        try:
            store.save(step, write, level)
        except (CheckpointError, OSError) as error:
            self.save_failed(level)
            warnings.warn(f"not saved: {error}", RuntimeWarning, stacklevel=2)
            return False
        self.save_end(level)
        return True

    def save_begin(self, level: int = FULL) -> None:
        """A save begins."""
        call("checkpoint_save_begin", self._handle, level)

    def save_copied(self, level: int = FULL) -> None:
        """The program goes on while the save is written in the background; it protects from :meth:`save_end` on."""
        call("checkpoint_save_copied", self._handle, level)

    def save_end(self, level: int = FULL) -> None:
        """A save is done."""
        call("checkpoint_save_end", self._handle, level)

    def save_failed(self, level: int = FULL) -> None:
        """A save could not be made."""
        call("checkpoint_save_failed", self._handle, level)

    def failed(self) -> None:
        """Something failed that this process survives; it will restore its last save."""
        call("checkpoint_failed", self._handle)

    def restored(self) -> None:
        """The state is restored."""
        call("checkpoint_restored_end", self._handle)

    def remaining_steps(self, steps: int) -> None:
        """How many steps are still to be done."""
        call("checkpoint_remaining_steps", self._handle, unsigned("steps", steps, 64))

    def preempt(self, notice: float) -> None:
        """The job will be ended after so many seconds: a save is due at the next step, if there is time."""
        call("checkpoint_preempt", self._handle, notice)
