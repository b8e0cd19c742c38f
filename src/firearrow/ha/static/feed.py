"""Replication state of one slave on its master, without socket or clock.

    received(data, now)      handles the slave's reports
    next_frames(bytes, now)  returns what to send: pieces of the log, a heartbeat after silence, or nothing
    is_silent(now)           whether the slave has been silent for too long

Invariants
- `sent` is the start of the next frame; frames follow each other without a gap.
- `confirmed` <= `sent` <= the end of the log. A slave that reports otherwise does not belong to this master.
- Only bytes that are durable here are sent (the end of the source), so a slave never has what its master may lose.

Batching: a slave that is processing a piece receives the next one when it has acknowledged the first, when much is pending, or
after GATHER_MS. Pieces grow under load, and the cost of a piece hardly depends on its size.
"""

from __future__ import annotations

from typing import Protocol

from firearrow.ha.peers.handshake import PREAMBLE
from firearrow.ha.static.protocol import REPORT, HaError, ReportDecoder, encode_frame

GATHER_BYTES = 64 * 1024
GATHER_MS = 20
(_PREAMBLE,) = REPORT.unpack(PREAMBLE)  # of a slave that authenticates, read as a report


class LogSource(Protocol):
    """The master's log."""

    @property
    def begin(self) -> int:
        """Start of the oldest segment."""

    @property
    def end(self) -> int:
        """Offset up to which the log may be sent."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes from one segment; empty if it was deleted."""


class Feed:
    """The position of one slave and the frames it needs."""

    def __init__(self, source: LogSource, *, batch_bytes: int, heartbeat_ms: int, silence_ms: int, now_ms: int) -> None:
        self.requested: int | None = None  # the first report
        self.sent = 0
        self.confirmed = 0
        self.sent_bytes = 0
        self._source = source
        self._batch_bytes = batch_bytes
        self._heartbeat_ms = heartbeat_ms
        self._silence_ms = silence_ms
        self._heard_ms = now_ms
        self._spoke_ms = now_ms
        self._reports = ReportDecoder()

    @property
    def behind(self) -> int:
        return self._source.end - self.confirmed

    def received(self, data: bytes, now_ms: int) -> bool:
        """Return True if the slave has acknowledged more than before, or has sent its start position."""
        self._heard_ms = now_ms
        reports = self._reports.feed(data)
        if not reports:
            return False
        first = self.requested is None
        if first:
            self._begin(reports[0])
        highest = max(reports)
        if highest > self.sent or min(reports) < 0:
            raise HaError(
                f"it reports a log up to {highest}, but was sent only {self.sent}: it is not a slave of this master, or also "
                "copies from another one"
            )
        if highest <= self.confirmed and not first:
            return False
        self.confirmed = highest
        return True

    def next_frames(self, max_bytes: int, now_ms: int) -> list[bytes]:
        """Return at most `max_bytes` of the log as frames. If that many are returned, more may be available."""
        if self.requested is None:
            return []
        frames: list[bytes] = []
        end = self._source.end
        if self._is_busy(now_ms) and end - self.sent < GATHER_BYTES:
            return frames
        limit = min(end, self.sent + max_bytes)
        while self.sent < limit:
            data = self._source.read(self.sent, limit - self.sent)
            if not data:
                raise HaError(f"it is at {self.sent}, which is deleted: the log of this master begins at {self._source.begin}")
            view = memoryview(data)
            for start in range(0, len(data), self._batch_bytes):
                frames.append(encode_frame(self.sent + start, view[start : start + self._batch_bytes]))
            self.sent += len(data)
            self.sent_bytes += len(data)
        if not frames and now_ms - self._spoke_ms >= self._heartbeat_ms:
            frames.append(encode_frame(self.sent, b""))
        if frames:
            self._spoke_ms = now_ms
        return frames

    def _is_busy(self, now_ms: int) -> bool:
        return self.sent_bytes > 0 and self.confirmed < self.sent and now_ms - self._spoke_ms < GATHER_MS

    def heard(self, now_ms: int) -> None:
        """Treat the slave as heard from, after a test has moved the clock."""
        self._heard_ms = now_ms

    def is_silent(self, now_ms: int) -> bool:
        return now_ms - self._heard_ms > self._silence_ms

    def _begin(self, offset: int) -> None:
        """Set the start position. An empty slave receives the whole log. (Apache's master sends it the newest segment only.)"""
        begin, end = self._source.begin, self._source.end
        if offset == _PREAMBLE:
            raise HaError("it authenticates, but this master does not: configure peerSecretFile here too")
        if offset == 0:
            offset = begin
        if offset > end or offset < 0:
            raise HaError(
                f"it requests log offset {offset}, but the log of this master ends at {end}: it is a slave of another master, or "
                "this master has lost the end of its log. Move the slave's store directory away and restart it"
            )
        if offset < begin:
            raise HaError(
                f"it requests log offset {offset}, but the log of this master begins at {begin}: the bytes between are deleted. "
                "Move the slave's store directory away and restart it"
            )
        self.requested = self.sent = offset
