"""Acknowledgement policies: the condition under which a written message is acknowledged and becomes readable.

    LocalFlush       this broker's log, as `flushDiskType` says     here
    StreamToSlaves   the same; slaves get a copy                    ha/static/master.py
    InSyncReplicas   and enough slaves have confirmed               ha/static/master.py
    Quorum           a majority of an elected group has it          ha/elected/member.py
    MasterLog        a slave, which acknowledges to its master      ha/static/slave.py

`GroupCommit` has one policy at a time. A change of role replaces it as a whole (`GroupCommit.set_policy`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from firearrow.broker.send.group_commit import GroupCommit


class Stall(NamedTuple):
    """The reason why pending messages are not acknowledged, for the remark to rejected sends."""

    cause: str
    advice: str


DISK_STALL = Stall("the disk has not taken writes", "check this broker's disk")


class AckPolicy(Protocol):
    """`GroupCommit` calls these methods in the event loop's thread."""

    @property
    def defers(self) -> bool:
        """True if replies wait for `GroupCommit.release`, False if they are sent after the write."""

    @property
    def replicates(self) -> bool:
        """True if the log is copied to others. Then writes are never held back for the end of a flush."""

    def written(self) -> None:
        """Handle a write to the log. Called only if the policy replicates."""

    def flushed(self, commit: GroupCommit, offset: int) -> None:
        """Handle that the local log is as durable as `flushDiskType` asks for, up to `offset`. Release what is safe by now."""

    def stall(self, *, flushed: bool) -> Stall | None:
        """Return why the oldest pending messages wait, or None to let them wait. `flushed`: they are durable here."""


class LocalFlush:
    """A broker without replicas: acknowledged when written (ASYNC_FLUSH) or flushed (SYNC_FLUSH)."""

    replicates = False

    def __init__(self, *, sync_flush: bool) -> None:
        self.defers = sync_flush

    def written(self) -> None:
        pass

    def flushed(self, commit: GroupCommit, offset: int) -> None:
        commit.release(offset)

    def stall(self, *, flushed: bool) -> Stall | None:
        return DISK_STALL
