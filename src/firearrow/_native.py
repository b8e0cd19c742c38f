"""The parts of the package that are also there in C, for the few loops where the interpreter costs more than everything else.

They are built when the package is installed, if there is a C compiler (hatch_build.py); whatever they do is there in Python too,
and does the same. Set FIREARROW_PURE=1 to go without them.

Why they are there: with Python alone one core did the work of a broker that fills two, and transactions and delayed messages came
to 1.1 times Apache's rate, where 1.3 was wanted. In one process, without sockets, a send takes 7 us with them and 13 us without,
half a transaction and its commit 20.5 and 31.
"""

from __future__ import annotations

import importlib
import os
from typing import Any


def load(name: str) -> Any:
    """The module, or None: Python alone."""
    if os.environ.get("FIREARROW_PURE") == "1":
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
