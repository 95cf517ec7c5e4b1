"""Trains a network of PyTorch on the data of all ranks, and goes on when one is killed.

    ropewalk run -n 4 --on-failure continue python train_torch.py [VICTIM]

A gradient goes to the call as the tensor that it is, by DLPack. The victim is killed before its call: nobody has its
gradient of that step, and the others go on without it.
"""

import os
import signal
import sys

import ropewalk
import torch
from torch.nn.utils import parameters_to_vector

STEPS, BATCH = 400, 64


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The data of a rank in a step: points of a plane, and the function that is learned."""
    points = 2 * torch.rand(BATCH, 2, generator=torch.Generator().manual_seed(1000 * rank + step)) - 1
    return points, torch.sin(3 * points[:, :1]) * points[:, 1:]


victim = int(sys.argv[1]) if len(sys.argv) > 1 else None
torch.manual_seed(0)  # All ranks begin with the same weights.
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
parameters = list(model.parameters())
optimizer = torch.optim.Adam(parameters, lr=0.01)
losses: list[float] = []
with ropewalk.Job() as job:
    group: ropewalk.Group = job
    for step in range(STEPS):
        points, targets = batch(job.rank, step)
        loss = torch.nn.functional.mse_loss(model(points), targets)
        gradients = torch.autograd.grad(loss, parameters)
        if job.rank == victim and step == STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        mine = torch.cat([part.flatten() for part in (*gradients, loss.detach())])
        outcome = group.allreduce(mine, on_loss="exclude")
        mean = torch.from_numpy(outcome.value) / outcome.receipt.contributions
        if outcome.receipt.excluded:
            group = group.without(outcome.receipt.excluded)
        parts = torch.split(mean[:-1], [parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts):
            parameter.grad = part.reshape(parameter.shape)
        optimizer.step()
        losses.append(float(mean[-1]))
    everyone = group.allgather(parameters_to_vector(parameters).detach()).value
    assert (everyone == everyone[0]).all(), "the ranks have different weights"
    if job.rank == group.ranks[0]:
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}; {len(group.ranks)} of {job.size} ranks at the end")
