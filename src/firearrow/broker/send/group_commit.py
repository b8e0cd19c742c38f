"""From "appended" to "acknowledged": the sends of one event-loop round go to the log together and are answered together.

    sends of a round --end_round()--> one write --+-- ASYNC_FLUSH: confirmed at once ------------------+--> replies leave,
                                                  +-- SYNC_FLUSH: group waits for the flusher's word --+    held pulls wake
                                                  +-- SYNC_MASTER: and for the word of enough replicas +

A round ends when every connection that had data ready has been served. Under load a round therefore gathers the sends of many
connections, and one write (and one flush) pays for all of them; with a single client it is one message, and nothing waits. What
comes while a flush is under way is written when it is over, just before the next.

Invariants
- A success reply leaves only after the log is as durable as `flushDiskType` promises, and only if nothing failed on the way.
- With replicas, `durable` hears how far the log is durable here, and says with `release` how far it is safe. What it gives up
  waiting for is released with a code that says so.
- Groups are confirmed and answered in the order they were written.
- After a failed write or flush no reply of the failed groups says success; the store refuses further writes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firearrow.broker.observability.stats import BrokerStats
from firearrow.broker.send.handler import Reply, SendHandler
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.store.errors import StoreError
from firearrow.store.message_store import MessageStore
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import encode_response

log = logging.getLogger("firearrow.broker")

_HOLD_MS = 100  # what waits for the end of a flush is written by then all the same


@dataclass(slots=True)
class PendingAck:
    """Written, not flushed yet."""

    end_offset: int
    written_ms: int
    replies: list[Reply]


class GroupCommit:
    """`arrived(queue, first, end)` is called when messages have become readable in a queue where somebody waits."""

    def __init__(
        self,
        store: MessageStore,
        sends: SendHandler,
        arrived: Callable[[ConsumeQueue, int, int], None],
        stats: BrokerStats,
        now_ms: Callable[[], int],
        *,
        sync_flush: bool,
        flush_timeout_ms: int,
    ) -> None:
        self._store = store
        self._sends = sends
        self._arrived = arrived
        self._stats = stats
        self._now_ms = now_ms
        self._sync_flush = sync_flush
        self._flush_timeout_ms = flush_timeout_ms
        self._waiting: deque[PendingAck] = deque()
        self.durable: Callable[[int], None] | None = None  # whoever copies the log to others
        self._durable_offset = 0  # kept when somebody does
        self.written: Callable[[], None] | None = None  # whoever sends the log to others before it is durable here
        self._waits = sync_flush
        self._held_since_ms = 0  # rounds that were over while a flush was under way are not written yet; 0: there are none
        self.answered_one: Callable[[object], None] | None = None  # after a round with one answer, when nothing is waited for

    def wait_for_replicas(self) -> None:
        """From now on no group is answered before it is released."""
        self._waits = True

    @property
    def flushing_since_ms(self) -> int | None:
        """Since when the oldest group waits for the disk; None: nothing waits for it."""
        if not self._waiting or self._waiting[0].end_offset <= self._durable_offset:
            return None
        return self._waiting[0].written_ms

    @property
    def waiting(self) -> bool:
        """Somebody waits for an answer: for the disk, or for replicas."""
        return bool(self._waiting or self._held_since_ms)

    def waiting_since(self, ms: int) -> int:
        """Where the last group ends that was written at this time or before, and waits; 0: none."""
        end = 0
        for group in self._waiting:
            if group.written_ms > ms:
                break
            end = group.end_offset
        return end

    def end_round(self, now_ms: int) -> None:
        """Writes what the round appended, or leaves it to the end of the flush that is under way.

        The next flush cannot begin earlier, and one write for all the rounds until then costs a fraction of a write for each.
        Whoever wants no more than the write (WAIT=false), or copies the log before it is durable, is not kept waiting.
        """
        if self._waiting and self._sync_flush and self.durable is None and not self._sends.early_replies:
            self._held_since_ms = self._held_since_ms or now_ms
            return
        self._write(self._held_since_ms or now_ms)

    def _write(self, now_ms: int) -> None:
        self._held_since_ms = 0
        sends = self._sends
        replies, sends.replies = sends.replies, []
        early, sends.early_replies = sends.early_replies, []
        try:
            group = self._store.write_out()
        except StoreError as error:
            self._fail(replies + early, str(error))
            return
        if group is None:
            self._answer_for_earlier(replies, early)
            return
        if self.written is not None:
            self.written()
        if self._waits:
            self._waiting.append(PendingAck(group.end_offset, now_ms, replies))
            if not self._sync_flush:
                self.flushed(group.end_offset)
        else:
            # First who waits for it. Nobody else is served before the messages are visible, too.
            answer(replies)
            self._confirm(group.end_offset)
            if replies or early:
                first = (replies or early)[0].request.code
                self._stats.put_took(self._now_ms() - now_ms, len(replies) + len(early), first)
            if len(replies) == 1 and self.answered_one is not None:
                self.answered_one(replies[0].conn)
            if self.durable is not None:
                self.flushed(group.end_offset)
        if early:
            answer(early)

    def flushed(self, offset: int) -> None:
        """The log is on the disk up to `offset`, or as near to it as it has to be."""
        if self._held_since_ms:
            self._write(self._held_since_ms)  # first: the disk goes on while these are answered
        if self.durable is None:
            self.release(offset)
        else:
            self._durable_offset = offset
            self.durable(offset)

    def release(self, offset: int, code: ResponseCode | None = None) -> None:
        """Groups up to `offset` are as safe as they will be: they become readable and are answered, with `code` if they should
        have become safer."""
        waiting, released = self._waiting, []
        while waiting and waiting[0].end_offset <= offset:
            released.append(waiting.popleft())
        if not released:
            return
        replies = released[0].replies if len(released) == 1 else _by_connection([r for group in released for r in group.replies])
        # The answers leave first: clients go on while the rest is done here, and nobody is served in between.
        answer(replies if code is None else [reply.with_code(code) for reply in replies])
        self._confirm(offset)
        now_ms = self._now_ms()
        for group in released:
            if group.replies:
                self._stats.put_took(now_ms - group.written_ms, len(group.replies), group.replies[0].request.code)

    def follow(self, offset: int) -> None:
        """What a replica has copied up to `offset` becomes readable."""
        self._confirm(offset)

    def give_up(self, reason: str) -> None:
        """This broker is no longer the one to store messages: what is not released by now is answered with that, whatever
        becomes of it. What was not written yet is not stored."""
        self._store.forget_pending()
        sends = self._sends
        unwritten, sends.replies, sends.early_replies = sends.replies + sends.early_replies, [], []
        self._held_since_ms = 0
        while self._waiting:
            self._fail(self._waiting.popleft().replies, reason)
        self._fail(unwritten, reason)

    def flush_failed(self, reason: str) -> None:
        """The disk refused: nobody who still waits may hear success, now or later."""
        while self._waiting:
            self._fail(self._waiting.popleft().replies, reason)
        if self._held_since_ms:
            self._write(self._held_since_ms)  # is refused, and they are told

    def expire(self, now_ms: int) -> None:
        """A flush that takes too long is answered with code 10: the message is stored, but not known to be on the disk."""
        if self._held_since_ms and now_ms - self._held_since_ms >= _HOLD_MS:
            self._write(self._held_since_ms)
        for group in self._waiting:
            if now_ms - group.written_ms < self._flush_timeout_ms:
                break
            answer([reply.with_code(ResponseCode.FLUSH_DISK_TIMEOUT) for reply in group.replies])
            group.replies = []

    def _answer_for_earlier(self, replies: list[Reply], early: list[Reply]) -> None:
        """Nothing was appended: what these speak of is older (a send repeated), and written, but perhaps not flushed."""
        if self._waiting:
            self._waiting[-1].replies += replies
        else:
            answer(replies)
        answer(early)

    def _confirm(self, offset: int) -> None:
        for queue, first, end in self._store.confirm(offset):
            if queue.waiters is not None:
                self._arrived(queue, first, end)

    def _fail(self, replies: list[Reply], reason: str) -> None:
        code = ResponseCode.SERVICE_NOT_AVAILABLE
        self._stats.put_failed += len(replies)
        answer([Reply(conn, request, encode_response(request, code, reason)) for conn, request, _ in replies])


def _by_connection(replies: list[Reply]) -> list[Reply]:
    """Those of one connection after each other, in their order, so that they are written together."""
    if len({conn for conn, _, _ in replies}) < len(replies):
        replies.sort(key=lambda reply: id(reply[0]))
    return replies


def answer(replies: Sequence[Reply]) -> None:
    """Writes replies, those of one connection that follow each other joined into one write."""
    if len(replies) == 1:
        conn, _, data = replies[0]
        conn.state.in_flight -= 1
        conn.write(data)
        return
    parts: list[bytes] = []
    last = None
    for conn, _, data in replies:
        if conn is not last:
            if last is not None:
                last.state.in_flight -= len(parts)
                last.write(b"".join(parts))
                parts.clear()
            last = conn
        parts.append(data)
    if last is not None:
        last.state.in_flight -= len(parts)
        last.write(b"".join(parts))
