"""Calls under way, and their outcomes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ropewalk import _native


class SchedulerLoad(NamedTuple):
    """Messages between the scheduler and the other ranks."""

    #: Messages that the scheduler received.
    received: int
    #: The bytes of these messages.
    received_bytes: int
    #: Messages that the scheduler sent.
    sent: int
    #: The bytes of these messages.
    sent_bytes: int


class Receipt(NamedTuple):
    """The members of which a result is."""

    #: The number of contributions in the result, each counted exactly once.
    contributions: int
    #: The rank where the result was made.
    root: int
    #: The ranks that were lost on the way, ascending.
    lost: tuple[int, ...]
    #: Those of them whose contributions are not in the result.
    excluded: tuple[int, ...]
    #: The number of plans that were made: one, or two if all get the result, and another for each late rank or loss.
    plans: int
    #: The ranks of whose contributions other hosts kept fewer copies than asked for, as far as that was known, ascending.
    unprotected: tuple[int, ...]
    #: The messages of the scheduler from the first call until the end was decided, those of other calls at that time
    #: among them. None if a call ended on one host without it.
    scheduler: SchedulerLoad


class Outcome(NamedTuple):
    """The outcome of a call."""

    #: The result: a NumPy array if the contribution was one, and otherwise a memoryview, of the type of the
    #: contribution's elements; ``out`` if that was given; ``None`` on ranks that get nothing.
    value: Any
    #: The members of which the result is.
    receipt: Receipt
    #: The seconds until this rank's contribution was protected; ``None`` if nobody protects it.
    exposure: float | None


class Reduction:
    """A call under way, which goes on while the program computes.

    Wait for it with :meth:`result`, ``await`` it, or ask :meth:`done` between other work. Dropping it does not end it:
    the other ranks need this rank's part. It may be used from several threads.
    """

    __slots__ = ("_error", "_finish", "_lock", "_outcome", "_pending")

    def __init__(self, pending: _native.Pending, finish: Callable[[_native.Memory], Any]) -> None:
        self._pending = pending
        self._finish = finish
        self._lock = threading.Lock()
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """True if :meth:`result` would return at once."""
        return self._pending.done()

    def is_protected(self) -> bool:
        """True if this rank's contribution survives the loss that ``protection`` or ``copies`` is for.

        Before that, such a loss ends the call with :exc:`~ropewalk.errors.LostError`, or excludes this rank. It stays
        false if nobody protects the contribution, as in a process without a launcher.
        """
        return self._pending.is_protected()

    def cancel(self) -> None:
        """Ends the call for all its ranks with :exc:`ropewalk.errors.CancelledError`, unless its end is decided already.

        It does not wait; :meth:`result` tells how the call ended.
        """
        self._pending.cancel()

    def result(self, timeout: float | None = None) -> Outcome:
        """Waits for the end and returns the outcome; other threads run meanwhile.

        After ``timeout`` seconds it raises the built-in :exc:`TimeoutError`, and the call goes on.

        Raises :exc:`ropewalk.errors.ReduceError` if the call ended without a result.
        """
        if not self._pending.wait(timeout):
            raise TimeoutError(f"the call has not ended within {timeout} s; it goes on")
        with self._lock:
            if self._outcome is None and self._error is None:
                try:
                    memory, fields, exposure = self._pending.take()
                    contributions, root, lost, excluded, plans, unprotected, load = fields
                    value = None if memory is None else self._finish(memory)
                    receipt = Receipt(
                        contributions,
                        root,
                        tuple(lost),
                        tuple(excluded),
                        plans,
                        tuple(unprotected),
                        SchedulerLoad(*load),
                    )
                    self._outcome = Outcome(value, receipt, exposure)
                except Exception as error:
                    self._error = error
            if self._error is not None:
                raise self._error
            assert self._outcome is not None
            return self._outcome

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits for the end like :meth:`result`, and returns its exception, or ``None``."""
        if not self._pending.wait(timeout):
            raise TimeoutError(f"the call has not ended within {timeout} s; it goes on")
        try:
            self.result()
        except Exception as error:
            return error
        return None

    def __await__(self) -> Generator[Any, None, Outcome]:
        return self._wait().__await__()

    async def _wait(self) -> Outcome:
        if not self._pending.done():
            loop = asyncio.get_running_loop()
            ended: asyncio.Future[None] = loop.create_future()
            descriptor = self._pending.descriptor()

            def wake() -> None:
                loop.remove_reader(descriptor)
                if not ended.done():
                    ended.set_result(None)

            loop.add_reader(descriptor, wake)
            try:
                await ended
            finally:
                loop.remove_reader(descriptor)
        return self.result()

    def __repr__(self) -> str:
        return f"<ropewalk.Reduction {'done' if self.done() else 'under way'}>"
