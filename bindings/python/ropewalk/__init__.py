"""Parallel jobs whose collective calls survive the loss of processes.

    import numpy, ropewalk

    with ropewalk.Job() as job:
        total = job.allreduce(numpy.full(1000, float(job.rank))).value

Start it with ``ropewalk run -n 4 python hello.py``, or from Python with :func:`run`. :class:`Job` has the collective
calls, :mod:`ropewalk.errors` the exceptions, and :mod:`ropewalk.checkpoint` saves the state of long computations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk._group import Buffer as Buffer, Contribution as Contribution, Group as Group, Options as Options
    from ropewalk._job import Job as Job, Verdict as Verdict, command as command, run as run
    from ropewalk._reduction import (
        Outcome as Outcome,
        Receipt as Receipt,
        Reduction as Reduction,
        SchedulerLoad as SchedulerLoad,
    )

    #: The version of the package and of its command.
    __version__: str

__all__ = [
    "Buffer",
    "Contribution",
    "Group",
    "Job",
    "Options",
    "Outcome",
    "Receipt",
    "Reduction",
    "SchedulerLoad",
    "Verdict",
    "command",
    "run",
]

# A type checker would take any name for one of the module's.
if not TYPE_CHECKING:
    _MODULES = {
        "_group": ("Buffer", "Contribution", "Group", "Options"),
        "_job": ("Job", "Verdict", "command", "run"),
        "_reduction": ("Outcome", "Receipt", "Reduction", "SchedulerLoad"),
    }

    def __getattr__(name: str) -> Any:
        """Loads the extension module only for a program that uses it: one that only saves checkpoints does not."""
        from importlib import import_module

        if name == "__version__":
            from importlib.metadata import version

            return version("ropewalk")
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f"ropewalk.{module}"), name)
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
