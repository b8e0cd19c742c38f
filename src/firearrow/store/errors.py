"""Errors of the store. A caller's mistake is a ValueError."""

from __future__ import annotations


class StoreError(Exception):
    """An operation failed. The text gives the reason and the remedy."""


class StoreLockedError(StoreError):
    """Another process has this store directory open."""


class NotWritableError(StoreError):
    """Writes are refused: the disk is too full, or an I/O error happened earlier. The text is a valid response remark."""


class TooLargeError(ValueError):
    """A message is larger than a commit-log file."""
