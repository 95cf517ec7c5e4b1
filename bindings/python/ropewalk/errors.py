"""The exceptions of jobs and collective calls.

Each carries ``rank``, the rank that the error is about; ``ranks``, all ranks that it is about, ascending; and ``host``,
the name of this host if the error is about it. They are ``None`` and empty where nothing is known. Except for
:class:`FencedError` and :class:`ResourceError` all ranks get the same error from a call. :class:`JobOver` is none of
them: it only ends the process.
"""

from __future__ import annotations

import builtins
from typing import Any, Sequence

__all__ = [
    "CancelledError",
    "Error",
    "FencedError",
    "JobEndedError",
    "JobError",
    "JobOver",
    "LostError",
    "MismatchError",
    "OperationError",
    "ReduceError",
    "ResourceError",
    "TimeoutError",
    "UsageError",
]


class Error(Exception):
    """An error of ropewalk."""

    #: The rank that the error is about.
    rank: int | None
    #: All ranks that it is about, ascending.
    ranks: tuple[int, ...]
    #: The name of this host, if the error is about it.
    host: str | None

    def __init__(
        self, message: str, *, rank: int | None = None, ranks: Sequence[int] = (), host: str | None = None
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.ranks = tuple(ranks)
        self.host = host


class JobError(Error):
    """The job could not be joined, was not left together with all others, or did not succeed."""


class JobOver(SystemExit):
    """This process replaces one that failed, and the others have done their work: nothing is left to do.

    If nobody catches it, it ends the process with exit code 0.
    """

    #: One sentence.
    message: str

    def __init__(self, message: str, **_: Any) -> None:
        super().__init__(0)
        self.message = message


class ReduceError(Error):
    """A collective call ended without a result."""


class LostError(ReduceError):
    """A rank was lost before its contribution was safe, or the root was lost: ``ranks`` names them."""


class FencedError(ReduceError):
    """The others count this process as gone, or may do so, and it must end."""


class MismatchError(ReduceError):
    """Rank ``rank`` calls for something else than the others, such as another length or operation."""


class OperationError(ReduceError):
    """The operation failed on rank ``rank``, for instance with an exception of a Python function."""


class TimeoutError(ReduceError, builtins.TimeoutError):
    """The option ``timeout`` of a rank is over; the contributions of ``ranks`` had not come."""


class CancelledError(ReduceError):
    """Rank ``rank`` cancelled the call; the contributions of ``ranks`` had not come."""


class JobEndedError(ReduceError):
    """The job has ended on this rank, or the group was made before ranks were admitted."""


class ResourceError(ReduceError):
    """This host has no memory for a contribution, or its agent does not take it."""


class UsageError(ReduceError, ValueError):
    """The call makes no sense, for instance with a root that is not in the group."""
