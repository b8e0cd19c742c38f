"""One slave as its master sees it: where it is, what to send next. No socket and no clock.

    received(data, now)      what the slave said
    next_frames(bytes, now)  what to send it: pieces of the log, a sign of life after silence, or nothing
    silent(now)              it has said nothing for too long

Invariants
- `sent` is where the next frame begins; frames follow each other without a gap.
- `confirmed` <= `sent` <= the end of the log: a slave that says otherwise is not ours.
- Only what is durable here is sent (the source's end is that): a slave never has what its master may lose.

Gathering: a slave that is busy with one piece gets the next when it has confirmed that one, or when there is much to send, or
when it takes its time. Under load the pieces grow by that, and a piece costs both sides nearly the same whatever its size.
"""

from __future__ import annotations

from typing import Protocol

from firearrow.ha.static.protocol import HaError, ReportDecoder, encode_frame

GATHER_BYTES = 64 * 1024
GATHER_MS = 20


class LogSource(Protocol):
    """The master's log."""

    @property
    def begin(self) -> int:
        """Where the oldest segment begins."""

    @property
    def end(self) -> int:
        """Up to where the log may be sent."""

    def read(self, offset: int, size: int) -> bytes:
        """From one segment; empty when that is gone."""


class Feed:
    def __init__(self, source: LogSource, *, batch_bytes: int, heartbeat_ms: int, silence_ms: int, now_ms: int) -> None:
        self.requested: int | None = None  # the first thing it said
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
        """True if the slave has confirmed more than before, or has just said where to begin."""
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
                f"it says that its log goes to {highest}, and has been sent everything up to {self.sent}: it is no slave of this "
                "master, or copies from another one as well"
            )
        if highest <= self.confirmed and not first:
            return False
        self.confirmed = highest
        return True

    def next_frames(self, most_bytes: int, now_ms: int) -> list[bytes]:
        """At most so many bytes of the log, in frames; more may follow when this is as many."""
        if self.requested is None:
            return []
        frames: list[bytes] = []
        end = self._source.end
        if self._is_busy(now_ms) and end - self.sent < GATHER_BYTES:
            return frames
        limit = min(end, self.sent + most_bytes)
        while self.sent < limit:
            data = self._source.read(self.sent, limit - self.sent)
            if not data:
                raise HaError(f"it is at {self.sent}, which is not kept any more: the log here begins at {self._source.begin}")
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
        """It counts as having spoken: the clock was moved by hand."""
        self._heard_ms = now_ms

    def silent(self, now_ms: int) -> bool:
        return now_ms - self._heard_ms > self._silence_ms

    def _begin(self, offset: int) -> None:
        """An empty slave gets everything there is. (Apache's master sends it the newest segment only.)"""
        begin, end = self._source.begin, self._source.end
        if offset == 0:
            offset = begin
        if offset > end or offset < 0:
            raise HaError(
                f"it asks for log offset {offset}, and the log here ends at {end}: it is no slave, or one of another master, or "
                "this master has lost the end of its log; if it is a slave, move its store directory away and start it again"
            )
        if offset < begin:
            raise HaError(
                f"it asks for log offset {offset}, and the log here begins at {begin}: what lies between is deleted already; "
                "move the slave's store directory away and start it again"
            )
        self.requested = self.sent = offset
