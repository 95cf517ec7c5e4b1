"""``python -m ropewalk`` is the command ``ropewalk`` of this environment."""

from __future__ import annotations

import os
import sys

from ropewalk import command

os.execv(command(), [command(), *sys.argv[1:]])
