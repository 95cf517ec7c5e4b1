"""Jobs as their processes see them, and how Python starts one."""

from __future__ import annotations

import array
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar, Union

from ropewalk._group import Buffer, Group, is_bfloat16
from ropewalk.errors import JobEndedError, JobError, LostError

if TYPE_CHECKING:
    from typing_extensions import Self


T = TypeVar("T")


class Job(Group):
    """This process's membership in its job, and the group of all its ranks.

        with ropewalk.Job() as job:
            total = job.allreduce(numpy.full(1000, float(job.rank))).value

    The job is that of ``ropewalk run``, or of a process manager that speaks PMI-1 or PMI-2 on one host; without one the
    process is a job of its own. A process makes one. A thread moves and combines data while the program computes.

    At the end of ``with`` the process waits for all other ranks that live, and leaves with them. It does not wait if
    an exception ends it: this rank then counts as lost when its process has ended.

    Raises :exc:`~ropewalk.errors.JobError` if another rank or the process manager does not do its part.
    """

    __slots__ = ("_job",)

    def __init__(self) -> None:
        from ropewalk import _native

        self._job = _native.Job()
        super().__init__(self._job.world())

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return self._job.rank

    @property
    def size(self) -> int:
        """The number of processes that the job was started with."""
        return self._job.size

    @property
    def lost(self) -> tuple[int, ...]:
        """The ranks that were lost when ranks were admitted last and had not come back; none before that.

        All ranks see the same. Receipts name those that are lost later.
        """
        return tuple(self._job.lost_and_stayed()[0])

    @property
    def has_come_back(self) -> bool:
        """True if this process replaces an earlier one of its rank."""
        return self._job.has_come_back

    def admit(self) -> tuple[int, ...]:
        """Takes in the ranks that were lost and have come back, and returns who they are: none, most of the time.

            while step < steps:
                if job.admit():
                    step, weights = job.share_state((step, weights))
                ...

        With ``on_failure="respawn"`` a rank that fails is started again; its ``Job()`` waits until the others admit it.
        All ranks that live call it at the same place between their other calls; those under way end first, and all
        ranks have to have begun them. If nobody has come back it costs as much as a short ``allreduce``. Otherwise
        groups made before raise :exc:`~ropewalk.errors.JobEndedError` from then on, and the job has the ranks that came
        back. What these do not know they get by :meth:`share_state`. The first call of a rank that came back returns
        what that of the others did, so that one loop is right for all. Before that it makes no other call: what all do
        before the loop, such as a barrier, is for ranks that have not :attr:`come back <has_come_back>`.
        """
        admitted = tuple(self._job.admit())
        if admitted:
            super().__init__(self._job.world())
        return admitted

    def share_state(self, value: T) -> T:
        """Gives the ranks that were admitted last the object of those that were there before. All ranks call.

        Pickle carries it; the ranks must trust each other. It comes from the lowest rank that was there before; if that
        is lost, from the next. Ranks that were there before keep their own object.
        """
        lost, stayed = self._job.lost_and_stayed()
        group: Group = self.without(lost) if lost else self
        for holder in stayed:
            try:
                told: T = group.broadcast_object(value, holder, on_loss="exclude")
            except LostError as error:
                if holder not in error.ranks or holder == stayed[-1]:
                    raise
            else:
                return value if self.rank in stayed else told
        raise JobEndedError("the job has been left")

    def buffer(self, shape: int | Sequence[int], dtype: Any = "d") -> Buffer:
        """Memory of zeros that a call takes without a copy. It comes back, with its content, when the call has ended.

            gradient = job.buffer(1000, "float32")
            for step in range(steps):
                numpy.asarray(gradient)[:] = compute(step)
                total = job.allreduce(gradient).value

        ``dtype`` is one of NumPy, or a letter of the module :mod:`array`. ``numpy.asarray(buffer)`` and
        ``memoryview(buffer)`` are views of the memory, and no copies. (That of ``bfloat16`` is of ``uint16``: add
        ``.view(ml_dtypes.bfloat16)``.)

        ``reduce``, ``allreduce``, ``gather`` and ``allgather`` and those with ``i`` take the memory itself, with a
        named operation other than ``"fsum"``; other calls copy it. The rank has no access until the call has ended, so
        that nobody can write a contribution: while there are views the call raises :exc:`BufferError`, and so does
        whoever wants a view during the call. An array that is kept (``u = numpy.asarray(buffer)``) is deleted before
        the call (``del u``), or contributed in place of the buffer, which copies it.

        In a job on one host up to 64 MiB are copied all the same, into memory that all ranks share: that is faster. A
        process that is forked meanwhile has no access to the memory; touching it ends that process.

        The memory is freed with the last view, and with the call that has it. If a :class:`~ropewalk.Reduction` is
        dropped before its end the buffer is gone.

        Raises :exc:`~ropewalk.errors.ResourceError` if there is no memory.
        """
        lengths = [shape] if isinstance(shape, int) else list(shape)
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return self._job.buffer(lengths, (array.array(dtype), False), dtype)
        dtype = numpy.dtype(dtype)
        is_bf16 = is_bfloat16(dtype)
        like = numpy.empty(0, numpy.uint16 if is_bf16 else dtype)
        return self._job.buffer(lengths, (like, is_bf16), dtype)

    def progress(self, label: str, done: int, total: int) -> None:
        """Tells whoever watches the job how far a part of the work is."""
        self._job.progress(label, done, total)

    def finalize(self) -> None:
        """Waits for all other ranks that live, and leaves the job with them. Calls under way fail.

        Raises :exc:`~ropewalk.errors.JobError` if they do not come, or the process manager does not answer.
        """
        self._job.finalize()

    def __repr__(self) -> str:
        return f"<ropewalk.Job, rank {self.rank} of {self.size}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finalize()
        else:
            self._job.abandon()


@dataclass(frozen=True)
class Verdict:
    """The end of a job. It is true if the job succeeded."""

    #: The exit code of ``ropewalk run``: 0, that of the first rank that failed, or 128 and the number of a signal.
    exit_code: int
    #: One sentence; empty if the job succeeded.
    reason: str
    #: The end of each rank, such as ``"exited with code 0"`` or ``"killed by signal 9"``.
    ranks: dict[int, str] = field(default_factory=dict)
    #: A sentence about each loss.
    losses: list[str] = field(default_factory=list)
    #: The standard output of all ranks, if it was captured.
    output: str | None = None

    def __bool__(self) -> bool:
        return self.exit_code == 0

    def check(self) -> Self:
        """Returns itself, or raises :exc:`~ropewalk.errors.JobError` if the job did not succeed."""
        if self:
            return self
        failed = sorted(rank for rank, end in self.ranks.items() if end != "exited with code 0")
        raise JobError(self.reason, rank=failed[0] if failed else None, ranks=failed)


def command() -> str:
    """The path of the command ``ropewalk``: that of this installation, or else the first on ``PATH``."""
    installed = Path(sysconfig.get_path("scripts")) / "ropewalk"
    found = str(installed) if installed.exists() else shutil.which("ropewalk")
    if found is None:
        raise JobError("the command ropewalk is neither installed with this package nor on PATH")
    return found


def run(
    program: Sequence[Union[str, os.PathLike[str]]],
    n: int | None = None,
    *,
    hosts: str | None = None,
    on_failure: Literal["abort", "continue", "respawn", "restart"] = "abort",
    options: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    capture_output: bool = False,
) -> Verdict:
    """Runs ``n`` ranks of a program, and returns the verdict.

        ropewalk.run([sys.executable, "hello.py"], n=4, on_failure="continue").check()

    ``hosts`` is as for ``ropewalk run -hosts``; ``options`` are further ones of that command, which ``ropewalk run
    --help`` lists. ``env`` has variables beside those of this process. The output of the ranks goes where that of this
    process goes; with ``capture_output`` the standard output is in the verdict. An exception, such as
    ``KeyboardInterrupt``, ends the job.

    Raises :exc:`~ropewalk.errors.JobError` if the command is missing; a job that fails is a verdict.
    """
    words = [command(), "run", "--log", "json", "--on-failure", on_failure]
    words += ["-n", str(n)] if n is not None else []
    words += ["-hosts", hosts] if hosts is not None else []
    words += [*options, *(os.fspath(word) for word in program)]
    verdict: dict[str, Any] = {}
    ranks: dict[int, str] = {}
    losses: list[str] = []
    output: list[str] = []
    with subprocess.Popen(
        words,
        env=None if env is None else {**os.environ, **env},
        stdout=subprocess.PIPE if capture_output else None,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        reader = threading.Thread(target=_read, args=(process.stdout, output), daemon=True)
        reader.start()
        try:
            for line in process.stderr or ():
                event = _event(line)
                if event is None:
                    if line.strip() != f"ropewalk: {verdict.get('verdict')}":
                        sys.stderr.write(line)
                elif event["event"] == "departed":
                    ranks[event["rank"]] = event["cause"]
                elif event["event"] == "lost":
                    losses.append(event["what"])
                elif event["event"] == "finished":
                    verdict = event
        except BaseException:
            process.terminate()
            raise
        finally:
            reader.join()
    exit_code = process.returncode
    reason = verdict.get("verdict") or ""
    if exit_code != 0 and not reason:
        reason = f"ropewalk run ended with code {exit_code}; its standard error says why"
    captured = "".join(output) if capture_output else None
    return Verdict(exit_code, "" if exit_code == 0 else reason, ranks, losses, captured)


def _read(stream: IO[str] | None, into: list[str]) -> None:
    if stream is not None:
        into.append(stream.read())


def _event(line: str) -> dict[str, Any] | None:
    """The event of the launcher that a line of standard error is; others are the ranks'."""
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
