"""Asking producers what became of their transactions.

Every `transactionCheckInterval` a round goes through the open half messages, oldest first:

    stored since the round began                            the round is over
    asked about `transactionCheckMax` times, or older
    than the messages that are kept (`fileReservedTime`)    given up: TRANS_CHECK_MAX_TIME_TOPIC, and a line in the log
    younger than `transactionTimeOut`                       the round is over: those behind it are younger still
    younger than its CHECK_IMMUNITY_TIME_IN_SECONDS         copied behind the others, nobody is asked
    otherwise                                               copied behind the others with TRANSACTION_CHECK_TIMES + 1, and any
                                                            live producer of its group is asked (39, one-way)

Copying moves the queue's beginning on, so that a restart does not have to go through what is decided. A producer that is asked
answers with END_TRANSACTION about the copy; therefore it is asked when the copy can be read. It counts as asked also when no
producer of the group is there.

A round works in portions, so that a million open half messages do not stop the broker; between rounds nothing is done.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from firearrow.broker.context import BrokerContext
from firearrow.broker.tables.topics import PERM_READ_WRITE
from firearrow.broker.transaction.half_message import Half, read_half
from firearrow.broker.transaction.op_queue import OpMessages
from firearrow.broker.transaction.state import GIVEN_UP, OPEN, HalfStates
from firearrow.store.consume_queue import ConsumeQueue
from firearrow.wire.headers.client import CheckTransactionStateRequestHeader
from firearrow.wire.message_ids import offset_msg_id
from firearrow.wire.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC

if TYPE_CHECKING:
    from firearrow.net.server import Connection

log = logging.getLogger("firearrow.broker")

PORTION = 250  # open halves that one tick deals with
PORTION_BYTES = 4 * 1024 * 1024  # of questions that wait to be asked
_HOUR_MS = 3_600_000
_REMEMBERED = 100_000


class PendingCheck(NamedTuple):
    """A check that leaves when the copy it is about can be read."""

    copy: int  # queue offset
    copy_at: int  # log offset
    group: str
    header: CheckTransactionStateRequestHeader
    body: bytes


class TransactionChecks:
    def __init__(self, parts: BrokerContext, queue: ConsumeQueue, halves: HalfStates, ops: OpMessages, host: bytes) -> None:
        self.sent = 0
        self.given_up: dict[int, None] = {}  # origins, oldest first: a decision that comes too late is still carried out
        self._parts = parts
        self._store = parts.store
        self._settings = parts.settings
        self._queue = queue
        self._halves = halves
        self._ops = ops
        self._host = host
        self._questions: deque[PendingCheck] = deque()
        self._held_bytes = 0  # of their bodies
        self._next_round_ms: int | None = None  # None: the broker has just started
        self._round_began_ms: int | None = None  # None: between rounds
        self._at = 0  # where the round has got to
        self._turn = 0  # producers of a group are asked in turn
        self._nobody: dict[str, int] = {}  # groups without a producer in this round, and how many messages wait for one

    def tick(self, now_ms: int) -> bool:
        """Does what is due. True if there is more than one tick should do."""
        if self._questions:
            self._ask()
        if self._round_began_ms is None:
            if self._next_round_ms is None:
                self._next_round_ms = now_ms + self._settings.transaction_check_interval
            if not self._is_due(now_ms):
                return False
            self._round_began_ms, self._at = now_ms, self._halves.first_open
        if self._questions or not self._store.writable:
            return False  # the disk has to catch up first
        if self._portion(now_ms, self._round_began_ms):
            self._end_round(now_ms)
            return False
        return True

    def next_due_ms(self) -> int | None:
        """When a tick will have something to do; None: there are no open half messages."""
        if self._questions or self._round_began_ms is not None:
            return 0
        return self._next_round_ms if self._halves.first_open < self._queue.max_offset else None

    def _is_due(self, now_ms: int) -> bool:
        interval_ms = self._settings.transaction_check_interval
        assert self._next_round_ms is not None
        self._next_round_ms = min(self._next_round_ms, now_ms + interval_ms)  # the clock, or the interval, was set back
        if now_ms < self._next_round_ms:
            return False
        self._next_round_ms = now_ms + interval_ms
        return self._halves.first_open < self._queue.max_offset

    def _portion(self, now_ms: int, round_began_ms: int) -> bool:
        """Goes on with the round. True when it is over."""
        queue, halves = self._queue, self._halves
        for _ in range(PORTION):
            if self._held_bytes > PORTION_BYTES:
                return False
            offset = halves.next_open(max(self._at, queue.min_offset), queue.max_offset)
            if offset >= queue.max_offset:
                return True
            half = read_half(self._store, queue, offset)
            if half is None:
                log.error("half message %d cannot be read; its transaction is given up", offset)
                halves.settle(offset, GIVEN_UP)
            elif not self._deal_with(half, now_ms, round_began_ms):
                return True
            self._at = offset + 1
        return False

    def _deal_with(self, half: Half, now_ms: int, round_began_ms: int) -> bool:
        """False: it is too young, and those behind it are as well."""
        settings = self._settings
        if half.record.store_timestamp >= round_began_ms:
            return False
        age_ms = now_ms - half.record.born_timestamp
        if half.check_times >= settings.transaction_check_max:
            self._give_up(half, now_ms, f"its producers were asked {half.check_times} times")
            return True
        kept_hours = self._parts.store_settings.file_reserved_time
        if age_ms > kept_hours * _HOUR_MS:
            self._give_up(half, now_ms, f"it is older than the {kept_hours} hours that messages are kept")
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
        """Puts it behind the others; with `check_times` a producer is asked."""
        copy = half.copied(check_times)
        self._parts.inner.deliver(copy, now_ms)
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
            bname=self._parts.name,
        )
        body = half.for_check(copy)
        self._questions.append(PendingCheck(copy.queue_offset, copy.physical_offset, group, header, body))
        self._held_bytes += len(body)

    def _ask(self) -> None:
        questions, readable = self._questions, self._store.confirm_offset
        while questions and questions[0].copy_at < readable:
            question = questions.popleft()
            self._held_bytes -= len(question.body)
            if self._halves.fate(question.copy) != OPEN:
                continue  # it was decided just now
            conn = self._live_producer(question.group)
            if conn is None:
                self._nobody[question.group] = self._nobody.get(question.group, 0) + 1
            else:
                self.sent += 1
                self._parts.notify(conn, question.header, question.body)
        if not questions and self._round_began_ms is None:
            self._tell_of_nobody()

    def _live_producer(self, group: str) -> Connection | None:
        live = [member.conn for member in self._parts.clients.producer_group(group) if not member.conn.closed]
        if not live:
            return None
        self._turn += 1
        return live[self._turn % len(live)]

    def _end_round(self, now_ms: int) -> None:
        self._round_began_ms = None
        self._next_round_ms = now_ms + self._settings.transaction_check_interval
        if not self._questions:
            self._tell_of_nobody()

    def _tell_of_nobody(self) -> None:
        for group, count in self._nobody.items():
            log.warning("no producer of group %s is connected to be asked about its %d open transactions", group, count)
        self._nobody.clear()

    def _give_up(self, half: Half, now_ms: int, why: str) -> None:
        self._parts.topics.ensure(TRANS_CHECK_MAX_TIME_TOPIC, 1, PERM_READ_WRITE, now_ms)
        self._parts.inner.deliver(half.given_up(), now_ms)
        self._halves.decide(half.origin, half.offset, GIVEN_UP)
        for offset in {half.offset, half.origin}:
            self._ops.add(offset, now_ms)
        self.given_up[half.origin] = None
        if len(self.given_up) > _REMEMBERED:
            del self.given_up[next(iter(self.given_up))]
        log.warning(
            "transaction %s of group %s for topic %s is given up: %s; its message is in %s",
            half.unique_key, half.producer_group, half.real_topic, why, TRANS_CHECK_MAX_TIME_TOPIC,
        )  # fmt: skip
