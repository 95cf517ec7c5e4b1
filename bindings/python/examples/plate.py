"""Heat that spreads over a plate. The three lines marked with a number are all that it takes to survive kills.

    python3 plate.py STEPS [DIRECTORY]

Prints at the end a hash of the temperatures, which does not depend on how often it was killed.
"""

import hashlib
import sys

import numpy

from ropewalk import checkpoint  # 1

steps = int(sys.argv[1])
u = numpy.zeros((200, 200))
u[0], u[:, 0] = 100.0, 50.0
v = u.copy()

with checkpoint.resume(sys.argv[2] if len(sys.argv) > 2 else "saves", u=u) as run:  # 2
    for step in run.steps(steps):  # 3: it was `for step in range(steps):`
        v[1:-1, 1:-1] = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        v[1:-1, 1:-1] -= 4.0 * u[1:-1, 1:-1]
        u[1:-1, 1:-1] += 0.2 * v[1:-1, 1:-1]

print(hashlib.sha256(u.tobytes()).hexdigest())
