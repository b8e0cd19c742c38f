"""Loader of the optional extension modules written in C.

They are built at installation if a C compiler is available (hatch_build.py). Every function in them also exists in Python with
the same behaviour. Set FIREARROW_PURE=1 to use Python only.
"""

from __future__ import annotations

import importlib
import os
from typing import Any


def load(name: str) -> Any:
    """Return the extension module, or None if it was not built or FIREARROW_PURE=1 is set."""
    if os.environ.get("FIREARROW_PURE") == "1":
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
