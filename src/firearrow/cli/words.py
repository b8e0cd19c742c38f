"""The words of `--cluster`, for the command line. Nothing but the standard library is loaded here."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

FORM_NAMES: Final = ("2m", "2m-2s-async", "2m-2s-sync", "dledger-3", "2xdledger-3")
DEFAULT_DATA: Final = "firearrow-data"


def unknown_form(text: str) -> str:
    """What to say about a form that is none."""
    return f"{text!r} is no form of a cluster; {did_you_mean(text.lower(), FORM_NAMES)}expected one of {', '.join(FORM_NAMES)}"


def did_you_mean(text: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(text, known, n=1, cutoff=0.4)
    return f"did you mean {close[0]}? " if close else ""
