"""The installed package does what its README says; `cargo xtask python` runs this in a fresh environment."""

import ctypes
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import ropewalk
from ropewalk import checkpoint, errors

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"


def run(script: Path, *arguments: str, n: int = 4) -> ropewalk.Verdict:
    """Runs 4 ranks of a script, which go on when one is lost."""
    return ropewalk.run(
        [sys.executable, script, *arguments],
        n=n,
        on_failure="continue",
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
        self.assertEqual(verdict.output.count(": ok"), 6, verdict)

    def test_hello(self) -> None:
        """A rank that is killed after its call is in the sum."""
        verdict = run(EXAMPLES / "hello.py").check()
        self.assertEqual(verdict.output, "sum 10 of 4 ranks, lost (3,)\n")
        self.assertEqual(verdict.ranks[3], "killed by signal 9")
        self.assertEqual(len(verdict.losses), 1)

    def test_training(self) -> None:
        """Training goes on with 3 ranks, also without the first one, and learns."""
        for victim in ["2", "0"]:
            verdict = run(EXAMPLES / "train.py", victim).check()
            assert verdict.output is not None
            self.assertTrue(verdict.output.endswith("; 3 of 4 ranks at the end\n"), verdict)
            before, after = verdict.output.removeprefix("loss ").split(";")[0].split(" -> ")
            self.assertLess(float(after), float(before) / 4)

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
