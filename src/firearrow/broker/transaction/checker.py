"""Transaction checks: requests to producers about half messages without a decision.

Every `transactionCheckInterval` a scan goes through the open half messages, oldest first:

    stored since the scan began                             the scan ends
    checked `transactionCheckMax` times, or older
    than the message retention (`fileReservedTime`)         given up: moved to TRANS_CHECK_MAX_TIME_TOPIC and logged
    younger than `transactionTimeOut`                       the scan ends: later ones are younger still
    younger than its CHECK_IMMUNITY_TIME_IN_SECONDS         copied to the end of the queue without a check
    otherwise                                               copied to the end of the queue with TRANSACTION_CHECK_TIMES + 1, and
                                                            a connected producer of its group is checked (39, one-way)

Copying advances the start of the queue, so that a restart does not have to read decided messages. The producer answers with
END_TRANSACTION about the copy, so the check is sent once the copy is readable. It counts even if no producer is connected.

A scan works in batches, so that a million open half messages do not block the broker.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

from firearrow.broker.context import BrokerContext
from firearrow.broker.tables.topics import PERM_READ_WRITE
from firearrow.broker.transaction.half_message import Half, read_half
from firearrow.broker.transaction.op_queue import OpMessages
from firearrow.broker.transaction.state import GIVEN_UP, OPEN, HalfStates
from firearrow.net.server import Connection
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.wire.headers.client import CheckTransactionStateRequestHeader
from firearrow.wire.message_ids import offset_msg_id
from firearrow.wire.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC

log = logging.getLogger("firearrow.broker")

BATCH = 250  # open half messages per tick
MAX_PENDING_BYTES = 4 * 1024 * 1024  # of check requests to send
_HOUR_MS = 3_600_000
_MAX_GIVEN_UP = 100_000


class PendingCheck(NamedTuple):
    """A check to send once its copy is readable."""

    copy: int  # queue offset
    copy_at: int  # log offset
    group: str
    header: CheckTransactionStateRequestHeader
    body: bytes


class TransactionChecks:
    def __init__(self, context: BrokerContext, queue: ConsumeQueue, halves: HalfStates, ops: OpMessages, host: bytes) -> None:
        self.sent = 0
        self.given_up: dict[int, None] = {}  # origins, oldest first; late decisions about them are carried out
        self._context = context
        self._store = context.store
        self._settings = context.settings
        self._queue = queue
        self._halves = halves
        self._ops = ops
        self._host = host
        self._pending: deque[PendingCheck] = deque()
        self._held_bytes = 0  # of their bodies
        self._next_scan_ms: int | None = None  # None: the broker has just started
        self._scan_started_ms: int | None = None  # None: no scan is running
        self._at = 0  # position of the scan
        self._turn = 0  # for round robin over the producers of a group
        self._unreachable: dict[str, int] = {}  # groups without a producer in this scan: number of open messages

    def tick(self, now_ms: int) -> bool:
        """Send checks and continue the scan. Return True if more work is due than one tick may do."""
        if self._pending:
            self._send_checks()
        if self._scan_started_ms is None:
            if self._next_scan_ms is None:
                self._next_scan_ms = now_ms + self._settings.transaction_check_interval
            if not self._is_due(now_ms):
                return False
            self._scan_started_ms, self._at = now_ms, self._halves.first_open
        if self._pending or not self._store.writable:
            return False  # wait until the copies are readable
        if self._scan(now_ms, self._scan_started_ms):
            self._end_scan(now_ms)
            return False
        return True

    def next_due_ms(self) -> int | None:
        """Return when a tick next has work to do; None if no half message is open."""
        if self._pending or self._scan_started_ms is not None:
            return 0
        return self._next_scan_ms if self._halves.first_open < self._queue.max_offset else None

    def _is_due(self, now_ms: int) -> bool:
        interval_ms = self._settings.transaction_check_interval
        assert self._next_scan_ms is not None
        self._next_scan_ms = min(self._next_scan_ms, now_ms + interval_ms)  # the clock was set back or the interval reduced
        if now_ms < self._next_scan_ms:
            return False
        self._next_scan_ms = now_ms + interval_ms
        return self._halves.first_open < self._queue.max_offset

    def _scan(self, now_ms: int, scan_started_ms: int) -> bool:
        """Continue the scan for one batch. Return True when it is complete."""
        queue, halves = self._queue, self._halves
        for _ in range(BATCH):
            if self._held_bytes > MAX_PENDING_BYTES:
                return False
            offset = halves.next_open(max(self._at, queue.min_offset), queue.max_offset)
            if offset >= queue.max_offset:
                return True
            half = read_half(self._store, queue, offset)
            if half is None:
                log.error("half message %d cannot be read; its transaction is given up", offset)
                halves.settle(offset, GIVEN_UP)
            elif not self._process(half, now_ms, scan_started_ms):
                return True
            self._at = offset + 1
        return False

    def _process(self, half: Half, now_ms: int, scan_started_ms: int) -> bool:
        """Check, copy or give up a half message. Return False if it is too young, like all later ones."""
        settings = self._settings
        if half.record.store_timestamp >= scan_started_ms:
            return False
        age_ms = now_ms - half.record.born_timestamp
        if half.check_times >= settings.transaction_check_max:
            self._give_up(half, now_ms, f"its producers were checked {half.check_times} times")
            return True
        kept_hours = self._context.store_settings.file_reserved_time
        if age_ms > kept_hours * _HOUR_MS:
            self._give_up(half, now_ms, f"it is older than the retention of {kept_hours} hours")
            return True
        immunity_ms = half.immunity_ms(settings.transaction_time_out)
        if immunity_ms is None:
            if 0 <= age_ms <= settings.transaction_time_out:
                return False
        elif age_ms <= immunity_ms:
            self._copy(half, 0, now_ms)
            return True
        self._copy(half, half.check_times + 1, now_ms)
        return True

    def _copy(self, half: Half, check_times: int, now_ms: int) -> None:
        """Copy it to the end of the queue. With `check_times`, also schedule a check."""
        copy = half.copied(check_times)
        self._context.writer.deliver(copy, now_ms)
        self._halves.moved(half.origin, half.offset, copy.queue_offset)
        group = half.producer_group
        if not check_times or not group:
            return
        header = CheckTransactionStateRequestHeader(
            topic=TRANS_HALF_TOPIC,
            tran_state_table_offset=copy.queue_offset,
            commit_log_offset=copy.physical_offset,
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
            offset_msg_id=offset_msg_id(self._host, copy.physical_offset),
            bname=self._context.name,
        )
        body = half.for_check(copy)
        self._pending.append(PendingCheck(copy.queue_offset, copy.physical_offset, group, header, body))
        self._held_bytes += len(body)

    def _send_checks(self) -> None:
        pending, readable = self._pending, self._store.confirm_offset
        while pending and pending[0].copy_at < readable:
            check = pending.popleft()
            self._held_bytes -= len(check.body)
            if self._halves.state(check.copy) != OPEN:
                continue  # decided in the meantime
            conn = self._connected_producer(check.group)
            if conn is None:
                self._unreachable[check.group] = self._unreachable.get(check.group, 0) + 1
            else:
                self.sent += 1
                self._context.notify(conn, check.header, check.body)
        if not pending and self._scan_started_ms is None:
            self._log_unreachable()

    def _connected_producer(self, group: str) -> Connection | None:
        live = [member.conn for member in self._context.clients.producer_group(group) if not member.conn.closed]
        if not live:
            return None
        self._turn += 1
        return live[self._turn % len(live)]

    def _end_scan(self, now_ms: int) -> None:
        self._scan_started_ms = None
        self._next_scan_ms = now_ms + self._settings.transaction_check_interval
        if not self._pending:
            self._log_unreachable()

    def _log_unreachable(self) -> None:
        for group, count in self._unreachable.items():
            log.warning("no producer of group %s is connected to check its %d open transactions", group, count)
        self._unreachable.clear()

    def _give_up(self, half: Half, now_ms: int, why: str) -> None:
        self._context.topics.ensure(TRANS_CHECK_MAX_TIME_TOPIC, 1, PERM_READ_WRITE, now_ms)
        self._context.writer.deliver(half.given_up(), now_ms)
        self._halves.decide(half.origin, half.offset, GIVEN_UP)
        for offset in {half.offset, half.origin}:
            self._ops.add(offset, now_ms)
        self.given_up[half.origin] = None
        if len(self.given_up) > _MAX_GIVEN_UP:
            del self.given_up[next(iter(self.given_up))]
        log.warning(
            "transaction %s of group %s for topic %s is given up: %s; its message is in %s",
            half.unique_key, half.producer_group, half.real_topic, why, TRANS_CHECK_MAX_TIME_TOPIC,
        )  # fmt: skip
