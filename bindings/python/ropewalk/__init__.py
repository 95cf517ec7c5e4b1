"""ropewalk for Python: see :mod:`ropewalk.checkpoint`."""
