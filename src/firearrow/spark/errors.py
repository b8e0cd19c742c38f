"""Errors of the Spark data source and its jobs."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class SparkOptionError(ValueError):
    """An invalid option, column or schema, reported while the query is planned."""


class DataLossError(RuntimeError):
    """Messages were deleted before they were read. The text names the topic, broker, queue and range of offsets."""


class StoreFileError(RuntimeError):
    """An unreadable store directory. The text names the file and the position in it."""


def suggest(given: str, known: Iterable[str], otherwise: str) -> str:
    """Return the end of an error message about an unknown name: the most similar known one, or `otherwise`."""
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(given.strip().lower(), by_lower, 1)
    return f"did you mean {by_lower[near[0]]}?" if near else otherwise
