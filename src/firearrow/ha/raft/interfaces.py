"""The log as raft sees it, and what raft asks of whoever drives it.

Positions are physical offsets of whole records. A `read` gives whole records, so that whatever arrives at a follower ends where a
record ends, and a follower that is elected begins its epoch there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from firearrow.ha.raft.epochs import EpochTable
from firearrow.ha.raft.hard_state import HardState
from firearrow.ha.raft.messages import Message
from firearrow.store.errors import StoreError


class LogDamagedError(StoreError):
    """Bytes that were durable cannot be read, or are not what was written."""


class RaftLog(Protocol):
    """After an error of `append`, `truncate`, `reset` or `sync` the log is not used again before it was opened anew."""

    @property
    def min_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def lost(self) -> bool:
        """Found at the opening: bytes that had been durable are gone or damaged. The log ends before them."""
        ...

    def read(self, offset: int, limit: int) -> bytes:
        """Whole records from `offset` on: up to `limit` bytes, at least one record. LogDamagedError, OSError."""
        ...

    def append(self, offset: int, data: bytes) -> None:
        """Whole records, at the end. Durable after `sync`."""
        ...

    def truncate(self, offset: int) -> None:
        """Cuts off what lies behind. Durable on return."""
        ...

    def reset(self, offset: int) -> None:
        """An empty log that begins at `offset`. Durable on return."""
        ...

    def sync(self) -> int:
        """Makes everything appended durable; the end it had then."""
        ...


@dataclass(slots=True)
class Ready:
    """What one event led to. To be carried out in the order of the fields, each durable before the next begins (but for
    `writes`); messages leave only after everything above them."""

    hard_state: HardState | None = None
    reset_to: int | None = None  # in doubt and without a table while it lasts: it may be cut short
    truncate_to: int | None = None
    epochs: EpochTable | None = None
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    sync: bool = False  # wanted soon; its end is reported as an event of its own
    messages: list[tuple[str, Message]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # lines for the operator
