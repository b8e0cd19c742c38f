"""Interfaces of the Raft core: the log it replicates, and the effects it asks its driver to carry out.

Positions are physical offsets of whole records. `read` returns whole records, so a follower's log always ends at a record
boundary, and a follower that is elected starts its epoch at one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from firearrow.ha.raft.epochs import EpochTable
from firearrow.ha.raft.hard_state import HardState
from firearrow.ha.raft.messages import Message
from firearrow.store.errors import StoreError


class LogDamagedError(StoreError):
    """Durable bytes cannot be read or differ from what was written."""


class RaftLog(Protocol):
    """A replicated log. After `append`, `truncate`, `reset` or `sync` fails it must be reopened before further use."""

    @property
    def min_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def lost(self) -> bool:
        """True if durable bytes were found missing or damaged when the log was opened. The log ends before them."""
        ...

    def read(self, offset: int, limit: int) -> bytes:
        """Return whole records from `offset`: up to `limit` bytes, at least one record. Raises LogDamagedError, OSError."""
        ...

    def append(self, offset: int, data: bytes) -> None:
        """Append whole records at the end of the log. They are durable after `sync`."""
        ...

    def truncate(self, offset: int) -> None:
        """Remove the bytes from `offset` on. Durable on return."""
        ...

    def reset(self, offset: int) -> None:
        """Replace the log with an empty one that begins at `offset`. Durable on return."""
        ...

    def sync(self) -> int:
        """Make the appended bytes durable and return the end of the log at that time."""
        ...


@dataclass(slots=True)
class Ready:
    """The effects of one event, to be carried out in the order of the fields.

    Each is durable before the next begins, except `writes`. Messages are sent after everything above them.
    """

    hard_state: HardState | None = None
    reset_to: int | None = None  # a crash may interrupt the reset, so the member is quarantined and without a table meanwhile
    truncate_to: int | None = None
    epochs: EpochTable | None = None
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    sync: bool = False  # requested soon; its completion is an event of its own
    messages: list[tuple[str, Message]] = field(default_factory=list)
    log_lines: list[str] = field(default_factory=list)  # for the operator
