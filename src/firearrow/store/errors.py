"""What can go wrong in the store, apart from a caller's mistake (ValueError)."""

from __future__ import annotations


class StoreError(Exception):
    """The store cannot do what was asked; the text says why and what to do."""


class StoreLockedError(StoreError):
    """Another process has this store directory open."""


class NotWritableError(StoreError):
    """The store refuses writes: the disk is too full, or an I/O error happened earlier. The text is fit for a response remark."""


class TooLargeError(ValueError):
    """A message that no commit-log file can hold."""
