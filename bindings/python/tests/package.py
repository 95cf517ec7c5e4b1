"""The installed package does what its README says; `cargo xtask python` runs this in a fresh environment."""

import array
import contextlib
import ctypes
import glob
import importlib.util
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid
import warnings
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy

import ropewalk
from ropewalk import checkpoint, errors

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"


def run(
    script: Path, *arguments: str, n: int = 4, on_failure: Literal["continue", "respawn"] = "continue"
) -> ropewalk.Verdict:
    """Runs 4 ranks of a script, which go on when one is lost."""
    return ropewalk.run(
        [sys.executable, script, *arguments],
        n=n,
        on_failure=on_failure,
        options=["--timeout", "60"],
        capture_output=True,
    )


class Package(unittest.TestCase):
    def test_installed(self) -> None:
        """The package, the command and the libraries come from the environment, and not from the repository."""
        assert ropewalk.__file__ is not None
        self.assertTrue(Path(ropewalk.__file__).is_relative_to(sys.prefix))
        self.assertEqual(ropewalk.command(), str(Path(sys.prefix) / "bin/ropewalk"))
        for library in ["libpmi.so.0", "libpmi2.so.0"]:
            ctypes.CDLL(str(Path(sys.prefix) / "lib/ropewalk" / library))
        self.assertAlmostEqual(checkpoint.interval(0.6, 25.0), 5.084744618, places=8)
        for name in ropewalk.__all__:
            self.assertTrue(name == "Contribution" or getattr(ropewalk, name).__doc__, name)
        said = subprocess.run(
            [sys.executable, "-m", "ropewalk", "--version"], capture_output=True, text=True, check=True
        )
        self.assertEqual(said.stdout, f"ropewalk {ropewalk.__version__}\n")
        self.assertEqual(checkpoint.CheckpointError.__module__, "ropewalk.checkpoint")
        with self.assertRaises(AttributeError):
            ropewalk.nothing  # type: ignore[attr-defined]

    def test_serial(self) -> None:
        """Without a launcher a process is a job of its own; it joins once, and after its end calls are errors."""
        script = """if True:
            import numpy, ropewalk
            with ropewalk.Job() as job:
                assert job.allreduce(numpy.array([7.0])).value[0] == 7 and job.size == 1
                try:
                    ropewalk.Job()
                    raise SystemExit("it joins twice")
                except RuntimeError:
                    pass
            try:
                job.allreduce(numpy.ones(100_000))
            except ropewalk.errors.JobEndedError:
                print("ended")
        """
        output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
        self.assertEqual(output, "ended\n")

    def test_collectives(self) -> None:
        """Each collective does what it promises for each type."""
        verdict = run(HERE / "collectives.py").check()
        assert verdict.output is not None
        print(verdict.output)
        self.assertEqual(verdict.output.count(": ok"), 10, verdict)

    def test_buffers(self) -> None:
        """A buffer is in memory once, where an array is twice, and outlives its rank."""

        def output(how: str, n: int, *options: str) -> str:
            words = [sys.executable, str(HERE / "buffers.py"), how]
            options = (*options, "--timeout", "60")
            verdict = ropewalk.run(words, n=n, on_failure="continue", options=options, capture_output=True)
            return verdict.check().output or ""

        for how, copies in [("buffer", 1.0), ("array", 2.0)]:
            found = output(how, 2, "-launcher", "fork", "-hosts", "h1,h2")
            memory = re.search(r"^memory (.*)$", found, re.MULTILINE)
            assert memory is not None and "sum True of 2\n" in found, found
            self.assertAlmostEqual(float(memory[1]), copies, delta=0.2)
        self.assertIn("sum True of 4\n", output("kill", 4))

    def test_hello(self) -> None:
        """A rank that is killed after its call is in the sum."""
        verdict = run(EXAMPLES / "hello.py").check()
        assert verdict.output is not None
        # The call may have ended before anybody knows of the loss.
        self.assertRegex(verdict.output, r"\Asum 10 of 4 ranks, lost \((3,)?\)\n\Z")
        self.assertEqual(verdict.ranks[3], "killed by signal 9")
        self.assertEqual(len(verdict.losses), 1)

    def test_training(self) -> None:
        """Training learns, goes on without a rank that was killed, also the first one, and takes it in again."""
        cases: list[tuple[Literal["continue", "respawn"], str, int]]
        cases = [("respawn", "2", 4), ("respawn", "0", 4), ("continue", "0", 3)]
        for policy, victim, left in cases:
            verdict = run(EXAMPLES / "train.py", victim, on_failure=policy).check()
            assert verdict.output is not None
            self.assertTrue(verdict.output.endswith(f"; {left} of 4 ranks at the end\n"), verdict)
            before, after = verdict.output.removeprefix("loss ").split(";")[0].split(" -> ")
            self.assertLess(float(after), float(before) / 4)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_torch(self) -> None:
        """A network of PyTorch learns, and goes on without a rank that was killed; gloo finds its ranks."""
        verdict = run(EXAMPLES / "train_torch.py", "2").check()
        assert verdict.output is not None
        self.assertTrue(verdict.output.endswith("; 3 of 4 ranks at the end\n"), verdict)
        before, after = verdict.output.removeprefix("loss ").split(";")[0].split(" -> ")
        self.assertLess(float(after), float(before) / 10)
        script = """if True:
            import torch, torch.distributed as dist
            dist.init_process_group("gloo")
            total = torch.full((3,), dist.get_rank() + 1.0)
            dist.all_reduce(total)
            dist.destroy_process_group()
            print("sum", total.tolist())
        """
        output = ropewalk.run([sys.executable, "-c", script], n=4, capture_output=True).check().output
        self.assertEqual((output or "").count("sum [10.0, 10.0, 10.0]"), 4, output)

    def test_migration(self) -> None:
        """The image of 4 ranks of which one is killed after its call is that of one process."""
        with tempfile.TemporaryDirectory() as folder:
            alone, shared = (os.path.join(folder, name) for name in ("alone.npy", "shared.npy"))
            words = [sys.executable, str(EXAMPLES / "migrate.py"), "--out", alone]
            expected = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            places = "750 m along the line, 450 m deep\n1500 m along the line, 900 m deep\n2250 m along the line, 600 m deep\n"
            self.assertEqual(expected, f"1 of 1 images; brightest at\n{places}")
            verdict = run(EXAMPLES / "migrate.py", "--victim", "3", "--out", shared).check()
            self.assertEqual(verdict.ranks[3], "killed by signal 9")
            self.assertEqual(verdict.output, f"4 of 4 images; brightest at\n{places}")
            # Another order of sums has other roundings.
            self.assertTrue(numpy.allclose(numpy.load(alone), numpy.load(shared), rtol=0, atol=1e-9))

    def test_monte_carlo(self) -> None:
        """The darts of the killed rank count as long as it lived."""
        verdict = run(EXAMPLES / "monte_carlo.py", "5e-4", "3").check()
        assert verdict.output is not None
        number, rest = verdict.output.removeprefix("pi = ").split(" +- ")
        self.assertLess(abs(float(number) - 3.14159), 2.5e-3)
        darts, rounds = int(rest.split()[2]), int(rest.split()[5])
        self.assertEqual(darts, 200_000 * (3 * rounds + 3))

    def test_checkpoint(self) -> None:
        """Checkpoints find their library."""
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, str(EXAMPLES / "heat.py"), folder, "200"]
            self.assertEqual(len(subprocess.run(words, check=True, capture_output=True).stdout), 65)

    def test_verdict(self) -> None:
        """A job that fails is a verdict that says why; what the ranks write to standard error is not swallowed."""
        script = """if True:
            import os, sys
            print("{not an event", file=sys.stderr)
            sys.exit(3 if os.environ["PMI_RANK"] == "1" else 0)
        """
        verdict = ropewalk.run([sys.executable, "-c", script], n=2, on_failure="continue")
        self.assertFalse(verdict)
        self.assertEqual(verdict.exit_code, 3)
        self.assertIn("rank 1", verdict.reason)
        self.assertEqual(verdict.ranks[1], "exited with code 3")
        with self.assertRaises(errors.JobError) as caught:
            verdict.check()
        self.assertEqual((caught.exception.rank, caught.exception.ranks), (1, (1,)))
        self.assertIn("not-there", ropewalk.run(["/not-there"], n=1).reason)


def saved_step(folder: str) -> int:
    """The highest step that a manifest below the folder names."""
    found = 0
    for path in map(Path, glob.glob(f"{folder}/generation-*/*.manifest")):
        try:
            text = path.read_text()
        except FileNotFoundError:  # Old ones are removed meanwhile.
            continue
        found = max([found, *(int(line.split()[1]) for line in text.splitlines() if line.startswith("step "))])
    return found


class NamedState(unittest.TestCase):
    """Arrays and scalars that are saved and restored by name."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_serial_loop(self) -> None:
        """The loop of a stranger is killed 20 times at random moments, and ends with the same bits."""
        killed = os.path.join(self.folder, "killed")
        took, steps = 0.0, 30_000
        # On any machine it lasts longer than 20 kills take.
        while took < 10:
            steps *= 2
            words = [sys.executable, str(EXAMPLES / "plate.py"), str(steps)]
            start = time.monotonic()
            calm = os.path.join(self.folder, f"calm-{steps}")
            expected = subprocess.run([*words, calm], check=True, capture_output=True).stdout
            took = time.monotonic() - start
        environment = {**os.environ, "ROPEWALK_MTBF": "0.5"}
        begun = []
        for _ in range(20):
            program = subprocess.Popen([*words, killed], env=environment, stdout=subprocess.PIPE)
            try:
                program.communicate(timeout=random.uniform(0.15, 0.6))
            except subprocess.TimeoutExpired:
                program.kill()
                program.communicate()
            self.assertEqual(program.returncode, -signal.SIGKILL, "it was to be killed before its end")
            begun.append(saved_step(killed))
        self.assertGreater(len(set(begun)), 5, begun)
        self.assertEqual(begun, sorted(begun))
        print("saved at the kills:", begun)
        found = subprocess.run([*words, killed], check=True, capture_output=True, env=environment).stdout
        self.assertEqual(found, expected)

    def test_ranks(self) -> None:
        """One of 4 ranks is killed 20 times, and the job ends with the same bits."""
        script, steps = EXAMPLES / "plate_ranks.py", 2000
        calm, killed = (os.path.join(self.folder, name) for name in ("calm", "killed"))
        words, options = [sys.executable, str(script), str(steps)], ["--timeout", "150", "--checkpoint"]
        expected = ropewalk.run(words, n=4, capture_output=True, options=[*options, calm]).check()
        mark = uuid.uuid4().hex
        kills: list[int] = []
        ended = threading.Event()

        def kill_some() -> None:
            while len(kills) < 20 and not ended.wait(0.02):
                ranks = [process for process in processes_of(mark) if process not in kills]
                # Spread over the whole run, however fast it is.
                if ranks and saved_step(killed) >= len(kills) * steps // 22:
                    random.shuffle(ranks)
                    time.sleep(random.uniform(0.0, 0.2))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(ranks[0], signal.SIGKILL)
                        kills.append(ranks[0])

        killer = threading.Thread(target=kill_some, daemon=True)
        killer.start()
        options = ["--on-failure", "restart=25", "--mtbf", "0.5", *options, killed]
        verdict = ropewalk.run([*words, mark], n=4, capture_output=True, options=options).check()
        ended.set()
        killer.join()
        self.assertEqual(len(kills), 20, "it ended before its kills")
        # An attempt that is killed after it has printed is followed by one that prints the same again.
        self.assertEqual(set((verdict.output or "").splitlines()), set((expected.output or "").splitlines()))
        self.assertEqual(len(expected.output or ""), 65)

    def test_other_ranks(self) -> None:
        """4 ranks are killed, 2 go on from their last save, then 3, and these end with the bits of an undisturbed job."""
        script, mark = str(EXAMPLES / "rod_ranks.py"), uuid.uuid4().hex
        calm, killed = (os.path.join(self.folder, name) for name in ("calm", "killed"))

        def job(n: int, steps: int, saves: str) -> ropewalk.Verdict:
            options = ["--timeout", "100", "--mtbf", "0.2", "--checkpoint", saves]
            words = [sys.executable, script, str(steps), mark]
            return ropewalk.run(words, n=n, capture_output=True, options=options)

        def told(verdict: ropewalk.Verdict) -> tuple[int, str]:
            found = re.fullmatch(r"(\d+) steps on \d ranks: (\w{64})\n", verdict.check().output or "")
            assert found is not None, verdict.output
            return int(found[1]), found[2]

        def kill_one() -> None:
            while saved_step(killed) < 1000:
                time.sleep(0.02)
            os.kill(random.choice(processes_of(mark)), signal.SIGKILL)

        killer = threading.Thread(target=kill_one, daemon=True)
        killer.start()
        verdict = job(4, 10**9, killed)
        killer.join(10.0)
        self.assertIn("signal 9", verdict.reason)
        reached = saved_step(killed)
        done, _ = told(job(2, reached + 1000, killed))
        self.assertLess(done, reached + 1000, "it began from its beginning")
        done, found = told(job(3, reached + 2000, killed))
        self.assertEqual(done, 1000)
        self.assertEqual((reached + 2000, found), told(job(1, reached + 2000, calm)))

    def test_partitioned(self) -> None:
        """Rows are restored on other ranks; what cannot be distributed is an error on all ranks, and nothing is lost."""
        starts = itertools.count()

        def ranks(counts: list[int], **more: Any) -> list[Any]:
            start = str(next(starts))
            results: list[Any] = [None] * len(counts)

            def work(rank: int) -> None:
                first = sum(counts[:rank])
                u = numpy.full((counts[rank], 2), -1.0)
                options = checkpoint.RunOptions(rank=rank, ranks=len(counts), start=start, patience=20.0)
                state = {name: value(rank) if callable(value) else value for name, value in more.items()}
                try:
                    with checkpoint.resume(self.folder, options, u=checkpoint.partitioned(u), **state) as run:
                        if run.step == 0:
                            u[:] = numpy.arange(first, first + len(u))[:, None]
                        list(run.steps(run.step + 1))
                        self.assertIs(run["u"], u)
                        results[rank] = (run.step, u[:, 1].tolist())
                except checkpoint.CheckpointError as error:
                    results[rank] = error

            threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(counts))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return results

        self.assertEqual(ranks([3, 2], t=7), [(1, [0.0, 1.0, 2.0]), (1, [3.0, 4.0])])
        self.assertEqual(ranks([1, 0, 4], t=0), [(2, [0.0]), (2, []), (2, [1.0, 2.0, 3.0, 4.0])])
        for _ in range(4):
            for error in ranks([1, 5], t=0):
                self.assertIsInstance(error, checkpoint.MismatchError)
                self.assertIn("the save holds 5 rows of all ranks together, and the ranks of this job have room for 6", str(error))
        self.assertEqual([step for step, _ in ranks([5], t=0)], [3])
        self.assertEqual([step for step, _ in ranks([2, 3], t=0)], [4, 4])
        w = numpy.zeros(2)
        for error in ranks([2, 3], t=0, w=lambda rank: checkpoint.partitioned(w[rank:]) if rank else w[:1].copy()):
            self.assertRegex(str(error), "w is float64 of 8 bytes, shape 1, partitioned on rank 1, and float64")
        for value, kind in ((numpy.zeros(()), ValueError), (1.0, TypeError), ([1.0], TypeError)):
            with self.assertRaisesRegex(kind, "^x "):
                checkpoint.resume(self.folder, x=checkpoint.partitioned(value))

    def test_values(self) -> None:
        """Arrays of all kinds and scalars of all types come back in place, to the last bit."""

        def state() -> dict[str, Any]:
            return {
                "grid": numpy.zeros((3, 4), numpy.float32),
                "half": numpy.zeros(5, ml_dtypes.bfloat16),
                "point": numpy.zeros((), numpy.complex128),
                "empty": numpy.zeros((0, 7)),
                "record": numpy.zeros(2, [("x", "f8"), ("n", "i4")]),
                "day": numpy.zeros(2, "datetime64[D]"),
                "numbers": array.array("l", [0] * 9),
                "bytes": bytearray(4),
                "count": 0,
                "t": 0,
                "done": False,
                "note": "",
            }

        with checkpoint.resume(self.folder, **state()) as run:
            self.assertEqual((run.step, run["note"]), (0, ""))
            for step in run.steps(3):
                run["grid"][:] = step + 0.5
                run["grid"] += 0
                run["half"][:], run["point"] = step, 1j * step
                run["record"]["n"], run["day"][:] = step, numpy.datetime64("2026-11-26")
                run["numbers"][8], run["bytes"][3] = -step, step
                run["count"] += 10**30
                run["t"], run["done"], run["note"] = run["t"] + 0.1, True, f"after \N{SNOWMAN} {step}"
            self.assertEqual(run.step, 3)
        with checkpoint.resume(self.folder, **state()) as run:
            self.assertEqual((run.step, list(run.steps(3))), (3, []))
            self.assertTrue((run["grid"] == 2.5).all() and (run["half"] == 2).all() and run["point"] == 2j)
            self.assertTrue((run["record"]["n"] == 2).all() and str(run["day"][1]) == "2026-11-26")
            self.assertEqual((run["numbers"][8], run["bytes"]), (-2, b"\0\0\0\2"))
            self.assertEqual([run[name] for name in ("count", "done", "note")], [3 * 10**30, True, "after \N{SNOWMAN} 2"])
            self.assertEqual(run["t"], 0.1 + 0.1 + 0.1)

    def test_mismatch(self) -> None:
        """A state that differs from the save is refused as often as somebody tries, and nothing is lost."""
        with checkpoint.resume(self.folder, u=numpy.ones((2, 3)), n=1) as run:
            for step in run.steps(2):
                run["u"] += 1
        wrong = numpy.zeros(6)
        for _ in range(5):
            cases: list[tuple[dict[str, Any], str]] = [
                ({"u": wrong, "n": 1}, "u was saved as float64 of 8 bytes, shape 2x3, and this program has .* shape 6"),
                ({"u": numpy.zeros((2, 3), int), "n": 1}, "this program has int64"),
                ({"u": numpy.zeros((2, 3))}, "the save holds n, which this program does not name; it names u"),
                ({"u": wrong, "n": 1, "w": 0}, "(nothing named w|shape 6)"),
            ]
            for state, text in cases:
                with self.assertRaisesRegex(checkpoint.MismatchError, text):
                    checkpoint.resume(self.folder, **state)
        self.assertFalse(wrong.any())
        right = numpy.zeros((2, 3))
        with checkpoint.resume(self.folder, u=right, n=0) as run:
            self.assertEqual((run.step, run["n"], right.tolist()), (2, 1, [[3.0] * 3] * 2))
        for bad, kind in [
            (numpy.zeros((4, 4)).T[1:], ValueError),
            (b"bytes", ValueError),
            (numpy.array([object()]), TypeError),
            (numpy.zeros(2, ">f8"), TypeError),
            ([1.0], TypeError),
            (None, TypeError),
        ]:
            with self.assertRaisesRegex(kind, "^x "):
                checkpoint.resume(self.folder, x=bad)
        base = numpy.zeros(4)
        with self.assertRaisesRegex(checkpoint.CheckpointError, "same memory"):
            checkpoint.resume(self.folder, a=base, b=base[1:])
        with self.assertRaises(KeyError):
            run["new"] = 1

    def test_failures(self) -> None:
        """A save that fails is a warning, the last one an error; an exception in the loop is a failure of the run."""
        folder = os.path.join(self.folder, "saves")
        u = numpy.zeros(1000)
        options = checkpoint.RunOptions(mtbf=0.01)
        with self.assertRaises(ZeroDivisionError):
            with checkpoint.resume(folder, options, u=u) as run:
                for step in run.steps(50):
                    u += 1
                    time.sleep(0.002)
                    if step == 30:
                        raise ZeroDivisionError
        u[:] = 0
        with warnings.catch_warnings(record=True) as caught, self.assertRaisesRegex(
            checkpoint.CheckpointError, "generation-"
        ):
            warnings.simplefilter("always")
            with checkpoint.resume(folder, options, u=u) as run:
                self.assertGreater(run.step, 0)
                self.assertTrue((u == run.step).all())
                for generation in range(100):
                    path = Path(folder, f"generation-{generation:010}")
                    if not path.exists():
                        path.touch()
                for _ in run.steps(50):
                    u += 1
                    time.sleep(0.01)
        self.assertIn("not saved: ", str(caught[0].message))
        self.assertTrue((u == 50).all())
        with self.assertRaisesRegex(checkpoint.CheckpointError, "rank 1 of 2"):
            checkpoint.resume(folder, checkpoint.RunOptions(rank=1, ranks=2), u=u)


def processes_of(mark: str) -> list[int]:
    """The ranks of a job among whose words is a mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            if mark.encode() in words and b"python" in words[0] and b"\0PMI_RANK=" in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            pass
    return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
