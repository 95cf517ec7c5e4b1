"""Times what a save of one array keeps a program from its work: python bench_checkpoint.py DIRECTORY [MIB]

Beside a save of `ropewalk.checkpoint` stand a copy of the array into memory whose pages exist, and, if PyTorch is
installed, `torch.distributed.checkpoint.async_save` of the same array. Each round begins when the saves of the one
before have ended. Each line has the median, the shortest and the longest of 9 rounds after 2 that do not count. The
time on the processor is that of the calling thread: it depends less on other programs of the machine.
"""

import shutil
import sys
import time
from pathlib import Path
from typing import Callable

import numpy as np
from ropewalk import checkpoint

ROUNDS, WARM_UPS = 9, 2
# A save that has not ended after so many seconds was not begun.
PATIENCE = 10.0


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def timed_twice(work: Callable[[], object]) -> tuple[float, float]:
    """The time on the clock, and on the processor."""
    began = time.thread_time()
    elapsed = timed(work)
    return elapsed, time.thread_time() - began


def newest(saves: Path) -> str:
    """The newest complete save: its manifest is written last."""
    return max((str(manifest) for manifest in saves.glob("*/*.manifest")), default="")


def saver(directory: Path, array: np.ndarray) -> Callable[[], object]:
    """A save at most calls: with a failure each tenth of a second one is due at the end of most steps."""
    options = checkpoint.RunOptions(mtbf=0.1, mtbf_is_known=True)
    run = checkpoint.resume(directory, options, array=array)
    steps = run.steps(sys.maxsize)
    next(steps)
    return lambda: next(steps)


def async_saver(directory: Path, array: np.ndarray) -> tuple[Callable[[], object], Callable[[], object]]:
    """A save at each call, and what waits for its end."""
    import torch
    import torch.distributed as distributed
    from torch.distributed.checkpoint import async_save

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    state, pending = {"array": torch.from_numpy(array)}, []

    def save() -> None:
        folder = directory / "torch"
        pending.append(async_save(state, checkpoint_id=folder))

    def wait() -> None:
        pending.pop().result()
        shutil.rmtree(directory / "torch")

    return save, wait


directory, mib = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 256
array = np.arange(mib << 17, dtype=np.float64)
copy = array.copy()
saves = directory / "saves"
shutil.rmtree(saves, ignore_errors=True)
ours = saver(saves, array)
times: dict[str, list[float]] = {
    "copy": [],
    "copy, on the processor": [],
    "ropewalk": [],
    "ropewalk, on the processor": [],
    "ropewalk, background": [],
}
try:
    save, wait = async_saver(directory, array)
    times |= {"torch, async_save": [], "torch, background": []}
except ImportError as error:
    print(f"without PyTorch: {error}")
    save = wait = lambda: None
while len(times["ropewalk"]) < WARM_UPS + ROUNDS:
    array += 1.0
    copied = timed_twice(lambda: np.copyto(copy, array))
    before = newest(saves)
    saved = timed_twice(ours)
    began = time.perf_counter()
    while newest(saves) == before and time.perf_counter() < began + PATIENCE:
        time.sleep(0.001)
    background = time.perf_counter() - began
    if background >= PATIENCE:
        continue
    for name, both in (("copy", copied), ("ropewalk", saved)):
        times[name].append(both[0])
        times[f"{name}, on the processor"].append(both[1])
    times["ropewalk, background"].append(background)
    # The generation before the last is removed.
    time.sleep(0.5)
    if "torch, async_save" in times:
        times["torch, async_save"].append(timed(save))
        times["torch, background"].append(timed(wait))
for name, seconds in times.items():
    low, *_, high = ordered = sorted(seconds[WARM_UPS:])
    print(f"{name}: {ordered[ROUNDS // 2] * 1e3:.1f} ms ({low * 1e3:.1f} to {high * 1e3:.1f})", flush=True)
