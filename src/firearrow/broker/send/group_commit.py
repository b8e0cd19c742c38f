"""Group commit: the messages of one event-loop iteration are written, flushed and acknowledged together.

    sends, internal writes --append--> store      schedule_commit()
    end of the iteration --commit()--> one write --+-- the policy does not defer ---------------+--> replies leave,
                                                   +-- it defers: PendingAck, until release() --+    parked pulls resume

`commit` runs when every connection that had data ready has been served. Under load it gathers the sends of many connections, and
one write (and one flush) pays for all of them; with a single client it is one message, and nothing waits. Sends that arrive
during a flush are written when it ends, just before the next.

Invariants
- A success reply leaves only after the acknowledgement policy (ack_policy.py) has released its messages, and only if no write or
  flush failed. A policy that stops waiting releases them with a code that says so.
- Groups are confirmed and answered in the order they were written.
- After a failed write or flush no reply of the failed groups says success; the store rejects further writes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from firearrow.broker.observability.stats import BrokerStats
from firearrow.broker.pull.long_polling import LongPolling
from firearrow.broker.requests.flow_control import FlowControl
from firearrow.broker.send.ack_policy import AckPolicy, Stall
from firearrow.broker.send.busy_poll import BusyPoller
from firearrow.broker.send.replies import PendingReplies, Reply, send_replies
from firearrow.net.server import Connection
from firearrow.store.errors import StoreError
from firearrow.store.message_store import MessageStore
from firearrow.wire.codes import ResponseCode
from firearrow.wire.frame import Command, encode_response

log = logging.getLogger("firearrow.broker")

_HOLD_MS = 100  # messages held back for the end of a flush are written after this time at the latest


@dataclass(slots=True)
class PendingAck:
    """A group of messages that is written and not acknowledged."""

    end_offset: int
    written_ms: int
    replies: list[Reply]


class GroupCommit:
    def __init__(
        self,
        store: MessageStore,
        policy: AckPolicy,
        replies: PendingReplies,
        long_polling: LongPolling,
        stats: BrokerStats,
        flow: FlowControl,
        now_ms: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        busy_poller: BusyPoller | None = None,
    ) -> None:
        self.scheduled_ms = 0  # when a commit was scheduled for the end of this iteration; 0: none is
        self._store = store
        self._policy = policy
        self._replies = replies
        self._long_polling = long_polling
        self._stats = stats
        self._flow = flow
        self._now_ms = now_ms
        self._call_soon = call_soon
        self._busy_poller = busy_poller
        self._sync_flush = store.settings.sync_flush
        self._flush_timeout_ms = store.settings.sync_flush_timeout
        self._pending: deque[PendingAck] = deque()
        self._flushed_offset = 0
        self._held_since_ms = 0  # since when messages are held back for the end of a flush; 0: none are

    def set_policy(self, policy: AckPolicy) -> None:
        """Acknowledge by another policy from now on. Pending groups wait for the new one."""
        self._policy = policy

    @property
    def pending(self) -> bool:
        """True while a producer waits for a write, a flush or for replicas."""
        return bool(self._pending or self._held_since_ms)

    @property
    def pending_since_ms(self) -> int | None:
        """The time at which the oldest pending group was written."""
        return self._pending[0].written_ms if self._pending else None

    def pending_end(self, written_by_ms: int) -> int:
        """Return the end offset of the last pending group that was written by this time, or 0."""
        end = 0
        for group in self._pending:
            if group.written_ms > written_by_ms:
                break
            end = group.end_offset
        return end

    def stall(self) -> Stall | None:
        """Return what the oldest pending group waits for; None if it may wait."""
        return self._policy.stall(flushed=bool(self._pending) and self._pending[0].end_offset <= self._flushed_offset)

    def schedule_commit(self, now_ms: int = 0) -> None:
        """Commit at the end of this event-loop iteration."""
        if not self.scheduled_ms:
            self.scheduled_ms = now_ms or self._now_ms()
            self._call_soon(self.commit_scheduled)

    def commit_scheduled(self) -> None:
        """Run the scheduled commit now, if there is one."""
        started_ms, self.scheduled_ms = self.scheduled_ms, 0
        if started_ms:
            self.commit(self._now_ms())
            self._flow.iteration_took(started_ms, self._now_ms())

    def answer_when_stored(self, conn: Connection, request: Command, response: bytes) -> None:
        """Send a response when everything appended so far is acknowledged."""
        if not request.flag & 2:
            self._replies.add(conn, request, response)
            self.schedule_commit()

    def commit(self, now_ms: int) -> None:
        """Write what was appended, or leave it to the end of the flush in progress.

        The next flush cannot start earlier, and one write for all the iterations until then costs a fraction of a write for each.
        Producers that only wait for the write (WAIT=false) and policies that replicate are not held up.
        """
        if self._pending and self._sync_flush and not self._policy.replicates and not self._replies.on_write:
            self._held_since_ms = self._held_since_ms or now_ms
            return
        self._write(self._held_since_ms or now_ms)

    def _write(self, now_ms: int) -> None:
        self._held_since_ms = 0
        replies, early = self._replies.take()
        try:
            group = self._store.write_out()
        except StoreError as error:
            self._fail(replies + early, str(error))
            return
        if group is None:
            self._answer_repeated(replies, early)
            return
        policy = self._policy
        if policy.defers:
            # Before anything that may fail: a reply that is not queued is never sent.
            self._pending.append(PendingAck(group.end_offset, now_ms, replies))
        if policy.replicates:
            policy.written()
        if policy.defers and not self._sync_flush:
            self.flushed(group.end_offset)
        if not policy.defers:
            # Replies first: no other request is served before the messages become readable.
            send_replies(replies)
            self.advance_readable(group.end_offset)
            if replies or early:
                first = (replies or early)[0].request.code
                self._stats.put_took(self._now_ms() - now_ms, len(replies) + len(early), first)
            if len(replies) == 1 and self._busy_poller is not None:
                self._busy_poller.replied(replies[0].conn)
            if policy.replicates:
                self.flushed(group.end_offset)
        if early:
            send_replies(early)

    def flushed(self, offset: int) -> None:
        """Handle that the log is as durable as `flushDiskType` asks for, up to `offset`."""
        self._flushed_offset = offset
        if self._held_since_ms:
            self._write(self._held_since_ms)  # first: the disk works while the replies are sent
        self._policy.flushed(self, offset)

    def release(self, offset: int, code: ResponseCode | None = None) -> None:
        """Acknowledge the groups up to `offset` and make them readable. `code` replaces success if they are less safe than
        promised."""
        pending, released = self._pending, []
        while pending and pending[0].end_offset <= offset:
            released.append(pending.popleft())
        if not released:
            return
        replies = released[0].replies if len(released) == 1 else _by_connection([r for group in released for r in group.replies])
        # Replies first: clients work while the rest is done here, and no other request is served in between.
        send_replies(replies if code is None else [reply.with_code(code) for reply in replies])
        self.advance_readable(offset)
        now_ms = self._now_ms()
        for group in released:
            if group.replies:
                self._stats.put_took(now_ms - group.written_ms, len(group.replies), group.replies[0].request.code)

    def advance_readable(self, offset: int) -> None:
        """Make the messages up to `offset` readable, and resume the pulls that wait for them."""
        parked = self._long_polling.parked
        for queue, first, end in self._store.confirm(offset):
            if queue in parked:
                self._long_polling.queue_grew(queue, first, end)

    def fail_pending(self, reason: str) -> None:
        """Reject all messages that are not released, because this broker is no longer the one to store them.

        Those that are written may survive all the same. The others are dropped.
        """
        self._store.discard_pending()
        replies, early = self._replies.take()
        self._held_since_ms = self._flushed_offset = 0
        self._fail_written(reason)
        self._fail(replies + early, reason)

    def flush_failed(self, reason: str) -> None:
        """Reject all pending messages after a failed flush: none of them may be acknowledged, now or later."""
        self._fail_written(reason)
        if self._held_since_ms:
            self._write(self._held_since_ms)  # the store rejects it, and the producers get its reason

    def expire(self, now_ms: int) -> None:
        """Answer groups that wait too long: their messages are stored, but not confirmed by the disk (10) or by replicas (12)."""
        if self._held_since_ms and now_ms - self._held_since_ms >= _HOLD_MS:
            self._write(self._held_since_ms)
        for group in self._pending:
            if now_ms - group.written_ms < self._flush_timeout_ms:
                break
            flushed = group.end_offset <= self._flushed_offset
            code = ResponseCode.FLUSH_SLAVE_TIMEOUT if flushed else ResponseCode.FLUSH_DISK_TIMEOUT
            send_replies([reply.with_code(code) for reply in group.replies])
            group.replies = []

    def _answer_repeated(self, replies: list[Reply], early: list[Reply]) -> None:
        """Answer sends that were recognised as repeated. Their messages are written, but may not be acknowledged yet."""
        if self._pending:
            self._pending[-1].replies += replies
        else:
            send_replies(replies)
        send_replies(early)

    def _fail_written(self, reason: str) -> None:
        while self._pending:
            self._fail(self._pending.popleft().replies, reason)

    def _fail(self, replies: list[Reply], reason: str) -> None:
        code = ResponseCode.SERVICE_NOT_AVAILABLE
        self._stats.put_failed += len(replies)
        send_replies([Reply(conn, request, encode_response(request, code, reason)) for conn, request, _ in replies])


def _by_connection(replies: list[Reply]) -> list[Reply]:
    """Group replies by connection, in their order, so that those of one connection share a write."""
    if len({conn for conn, _, _ in replies}) < len(replies):
        replies.sort(key=lambda reply: id(reply[0]))
    return replies
