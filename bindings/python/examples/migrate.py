"""Migrates seismic traces to an image of the ground, each rank those of some shots, and adds up the images.

    ropewalk run -n 4 --on-failure continue python migrate.py [--victim RANK] [--out image.npy]

A shot at the surface sends a wave down; scatterers in the ground send it back, and receivers record it. Kirchhoff
migration adds the sample of each trace to all points from which its wave can have come at that time: the images of many
shots agree only at the scatterers. The victim is killed after it has contributed its image, which is not lost.
"""

import argparse
import os
import signal

import numpy as np
import ropewalk

VELOCITY = 2000.0  # m/s
LENGTH, DEPTH, SPACING = 3000.0, 1500.0, 15.0  # The image, and the distance of its points, in m.
SHOTS, RECEIVERS = 24, 60
SAMPLES, INTERVAL = 1000, 0.004  # Of a trace, and the time between two, in s.
PEAK_HZ = 15.0
SCATTERERS = [(750.0, 450.0), (1500.0, 900.0), (2250.0, 600.0)]  # Distance along the line, and depth.

along = np.arange(0.0, LENGTH + 1, SPACING)
down = np.arange(SPACING, DEPTH + 1, SPACING)
shots = np.linspace(0.0, LENGTH, SHOTS)
receivers = np.linspace(0.0, LENGTH, RECEIVERS)


def recorded(shot: float) -> np.ndarray:
    """The traces of a shot: a Ricker wavelet from each scatterer, weaker on longer ways."""
    times = np.arange(SAMPLES) * INTERVAL
    traces = np.zeros((RECEIVERS, SAMPLES))
    for distance, depth in SCATTERERS:
        to = np.hypot(distance - shot, depth)
        back = np.hypot(distance - receivers, depth)[:, None]
        phase = (np.pi * PEAK_HZ * (times - (to + back) / VELOCITY)) ** 2
        traces += (1 - 2 * phase) * np.exp(-phase) * 1e6 / (to * back)
    return traces


def migrated(shot: float, traces: np.ndarray) -> np.ndarray:
    """The image of a shot: for each point the samples at the times of its ways."""
    to = np.hypot(along[:, None] - shot, down)
    image = np.zeros(to.shape)
    for receiver, trace in zip(receivers, traces):
        ways = to + np.hypot(along[:, None] - receiver, down)
        samples = np.rint(ways / (VELOCITY * INTERVAL)).astype(int)
        image += np.where(samples < SAMPLES, trace[np.minimum(samples, SAMPLES - 1)], 0.0)
    return image


def brightest(image: np.ndarray, count: int) -> list[tuple[float, float]]:
    """The brightest points of an image, no two of them within 300 m."""
    image, found = image.copy(), []
    for _ in range(count):
        x, z = np.unravel_index(np.argmax(image), image.shape)
        found.append((float(along[x]), float(down[z])))
        image[np.hypot(along[:, None] - along[x], down - down[z]) < 300] = 0
    return sorted(found)


parser = argparse.ArgumentParser()
parser.add_argument("--victim", type=int, help="the rank that is killed after its call")
parser.add_argument("--out", default="image.npy", help="the file of the image")
options = parser.parse_args()

with ropewalk.Job() as job:
    # Memory that the call takes as it is, without a copy.
    image = job.buffer((len(along), len(down)))
    for number in range(job.rank, SHOTS, job.size):
        shot = shots[number]
        np.asarray(image)[:] += migrated(shot, recorded(shot))
        job.progress("shots", number // job.size + 1, SHOTS // job.size)
    reduction = job.ireduce(image, root=0, on_root_loss="lowest")
    if job.rank == options.victim:
        os.kill(os.getpid(), signal.SIGKILL)
    outcome = reduction.result()
    if outcome.value is not None:
        np.save(options.out, outcome.value)
        print(f"{outcome.receipt.contributions} of {job.size} images; brightest at")
        for distance, depth in brightest(outcome.value, len(SCATTERERS)):
            print(f"{distance:g} m along the line, {depth:g} m deep")
