"""A wrong wall clock for one process, loaded by Python at start (PYTHONPATH). $WRONG_CLOCK has the offset in nanoseconds.

The file is mapped, so writing it sets the clock of the running process. Durations (`time.monotonic`) stay correct, as on a
machine whose clock is set.
"""

import mmap
import os
import struct
import time

with open(os.environ["WRONG_CLOCK"], "r+b") as file:
    _offset = mmap.mmap(file.fileno(), 8)
_unpack = struct.Struct("=q").unpack_from
_right_ns = time.time_ns


def _time_ns() -> int:
    return _right_ns() + int(_unpack(_offset)[0])


def _time() -> float:
    return _time_ns() / 1e9


time.time_ns = _time_ns
time.time = _time
