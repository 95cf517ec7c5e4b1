"""Trains a network on the data of all ranks, goes on when one is killed, and takes it in again when it comes back.

    ropewalk run -n 4 --on-failure respawn python train.py [VICTIM]

Each step averages the gradients of the ranks that live, so that all have the same weights, bit by bit. The victim is
killed before its call: nobody has its gradient of that step. Its new process gets the weights of the others. With
`--on-failure continue` there is none, and the others train without it.
"""

import os
import signal
import sys

import numpy as np
import ropewalk

STEPS, BATCH, HIDDEN, RATE = 4000, 32, 16, 0.1
SHAPES = [(2, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,)]
# This process replaces no other one.
IS_FIRST = os.environ.get("ROPEWALK_INCARNATION", "0") == "0"
SIZES = [int(np.prod(shape)) for shape in SHAPES]


def parts(flat: np.ndarray) -> list[np.ndarray]:
    """The matrices of a network, as views of one vector."""
    cuts = np.split(flat, np.cumsum(SIZES)[:-1])
    return [cut.reshape(shape) for cut, shape in zip(cuts, SHAPES)]


def batch(rank: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """The data of a rank in a step: points of a plane, and the function that is learned."""
    points = np.random.default_rng((rank, step)).uniform(-1, 1, (BATCH, 2))
    return points, np.sin(3 * points[:, :1]) * points[:, 1:]


def loss_and_gradient(weights: np.ndarray, points: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
    first, first_bias, second, second_bias = parts(weights)
    hidden = np.tanh(points @ first + first_bias)
    error = hidden @ second + second_bias - targets
    back = 2 * error / BATCH
    back_hidden = back @ second.T * (1 - hidden**2)
    gradient = [points.T @ back_hidden, back_hidden.sum(0), hidden.T @ back, back.sum(0)]
    return float((error**2).mean()), np.concatenate([part.ravel() for part in gradient])


victim = int(sys.argv[1]) if len(sys.argv) > 1 else None
with ropewalk.Job() as job:
    weights = np.random.default_rng(0).normal(0, 0.5, sum(SIZES))
    losses: list[float] = []
    group: ropewalk.Group = job
    step = 0
    while step < STEPS:
        if job.admit():
            group = job.without(job.lost)
            step, weights, losses = job.share_state((step, weights, losses))
        loss, gradient = loss_and_gradient(weights, *batch(job.rank, step))
        if job.rank == victim and step == STEPS // 10 and IS_FIRST:
            os.kill(os.getpid(), signal.SIGKILL)
        total, receipt, _ = group.allreduce(np.append(gradient, loss), on_loss="exclude")
        mean = total / receipt.contributions
        if receipt.excluded:
            group = group.without(receipt.excluded)
        weights -= RATE * mean[:-1]
        losses.append(float(mean[-1]))
        step += 1
    everyone = group.allgather(weights, on_loss="exclude")
    living = [rank for rank in group.ranks if rank not in everyone.receipt.excluded]
    kept = [row for rank, row in zip(group.ranks, everyone.value) if rank in living]
    assert all((row == weights).all() for row in kept), "the ranks have different weights"
    if job.rank == living[0]:
        print(f"loss {losses[0]:.3f} -> {np.mean(losses[-20:]):.3f}; {len(living)} of {job.size} ranks at the end")
