"""Transactional messages: delivered when their producer commits them.

    producer                        broker
    send, TRAN_MSG=true      -->    half topic, invisible to consumers                 half_message.py
    local transaction, then
    END_TRANSACTION 8 (37)   -->    message to its real queue, then op message         half_message.py, op_queue.py
    or END_TRANSACTION 12    -->    op message                                         op_queue.py
    or nothing, or 0         <--    check request (39), repeatedly                     checker.py

All state is in the half topic and the op topic. Their progress is saved as two consumer offsets of CID_RMQ_SYS_TRANS (state.py,
recovery.py). Recent half messages are also cached in memory (`HalfMessageCache`).

Guarantees:
- A half message stays open until a decision is stored, or it is given up. The offsets are saved only after the log is durable up
  to its end at the time they were taken.
- A message is committed once, however often the producer decides and about whichever copy: while the broker runs because the
  state is exact, after a crash because recovery finds commits in the log.
- A late decision about a message that was given up is carried out unless the broker was restarted since.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.message import COMMITTED as COMMIT_FLAG
from firearrow.broker.message import BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.broker.transaction.checker import TransactionChecks
from firearrow.broker.transaction.half_message import SYSTEM_GROUP, Half, half_at, hold_as_half, is_half, read_half
from firearrow.broker.transaction.op_queue import OpMessages
from firearrow.broker.transaction.recovery import Recovery, saved_offset
from firearrow.broker.transaction.state import COMMITTED, OPEN, ROLLED_BACK, HalfStates
from firearrow.net.address import parse_address
from firearrow.net.server import Connection
from firearrow.store.errors import StoreError
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response, encode_success
from firearrow.wire.headers.admin import ResumeCheckHalfMessageRequestHeader
from firearrow.wire.headers.client import EndTransactionRequestHeader
from firearrow.wire.message_ids import host_bytes, parse_offset_msg_id
from firearrow.wire.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC

log = logging.getLogger("firearrow.broker")

ROLLBACK_FLAG = 0xC
UNKNOWN_FLAG = 0
RECOVER_AT_START = 3_000  # open half messages that are read before the ports open
RECOVER_PER_TICK = 500
SEARCH_LIMIT = 64 * 1024 * 1024  # bytes of log that a recovery may have to search for commits
CACHE_SLOTS = 8192
MAX_CACHED_BYTES = 4096  # of body and properties

_STATES = {COMMIT_FLAG: COMMITTED, ROLLBACK_FLAG: ROLLED_BACK}
_STATE_NAMES = {COMMITTED: "committed", ROLLED_BACK: "rolled back"}
_REAL_TOPIC = b"\x02REAL_TOPIC\x01"  # REAL_TOPIC and REAL_QID are the last properties of a new half message


class TransactionProgress(NamedTuple):
    """Progress of the two queues. It may be saved once the log is durable up to `log_offset`."""

    log_offset: int
    first_open: int
    first_needed: int


class HalfMessageCache:
    """Recent half messages as they were sent.

    Most transactions are committed within milliseconds. From the cache the message is committed without reading and parsing it
    from the log, which is most of the work of a commit.

    A ring: the half message with queue offset n is in slot n modulo `CACHE_SLOTS`, until it is decided or overwritten by a later
    one; at most 32 MB. It is only an optimisation: anything not cached is read from the log. Large messages and messages with a
    delay or an immunity time are not cached.
    """

    def __init__(self) -> None:
        self._ring: list[BrokerMessage | None] = [None] * CACHE_SLOTS

    def put(self, half: BrokerMessage) -> None:
        if len(half.body) + len(half.properties) <= MAX_CACHED_BYTES:
            self._ring[half.queue_offset % CACHE_SLOTS] = half

    def find(self, queue_offset: int) -> BrokerMessage | None:
        half = self._ring[queue_offset % CACHE_SLOTS]
        return half if half is not None and half.queue_offset == queue_offset else None

    def remove(self, queue_offset: int) -> None:
        self._ring[queue_offset % CACHE_SLOTS] = None


class Transactions:
    """The transactions of one broker. The store must be open and the consumer offsets loaded."""

    def __init__(self, context: BrokerContext, now_ms: int) -> None:
        self._context = context
        self._store = context.store
        self._half_queue = self._store.queue(TRANS_HALF_TOPIC, 0)
        self._op_queue = self._store.queue(TRANS_OP_HALF_TOPIC, 0)
        self.checks_answered = 0
        self.activate(now_ms)

    def activate(self, now_ms: int) -> None:
        """Load the state from the log, at the start and whenever this broker becomes the master."""
        context, store = self._context, self._store
        host = host_bytes(*parse_address(context.address))
        self.half_cache = HalfMessageCache()
        self._halves = HalfStates(saved_offset(context.offsets, self._half_queue))
        self._ops = OpMessages(context.settings, context.writer, host, saved_offset(context.offsets, self._op_queue))
        self._recovery: Recovery | None = Recovery(store, self._half_queue, self._op_queue, self._halves, self._ops)
        self._recovery.begin(now_ms)
        self._recover(RECOVER_AT_START)
        self._checks = TransactionChecks(context, self._half_queue, self._halves, self._ops, host)
        self._taken = TransactionProgress(0, self._halves.first_open, self._ops.first_needed)
        self._unsaved: TransactionProgress | None = None

    # Half messages

    def defer(self, message: BrokerMessage, now_ms: int) -> bool:
        """Redirect a half message to the half topic; False for any other message."""
        if not is_half(message):
            return False
        if self._context.settings.reject_transaction_message:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._context.name}] sending transaction message is forbidden (rejectTransactionMessage is true)",
            )
        raw = message.properties
        if raw.find(b"DEL") >= 0:  # as in DeferralRouter.put: it may ask to be delayed when it is committed
            self._context.deferral.check(message, now_ms)
        elif raw.find(b"CHECK_IMMUNITY") < 0:
            message.on_stored = self.half_cache.put
        hold_as_half(message)
        return True

    # Decisions

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self._end_transaction,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume_check_half_message,
        }

    def _end_transaction(self, conn: Connection, request: Command, now_ms: int) -> bytes | None:
        try:
            header = request.header or EndTransactionRequestHeader.decode(request.ext)
            if header.from_transaction_check:
                self.checks_answered += 1
            state = _STATES.get(header.commit_or_rollback)
            if state is None:
                _check_unknown(header.commit_or_rollback)
                return None
            new = self._decide_cached(header, state, now_ms) or self._decide(header, state, now_ms)
        except Refused as refused:
            if request.is_oneway:  # the usual case; the producer does not get the error
                log.info("a transaction decision from %s was rejected: %s", conn.peer, refused.remark)
            raise
        if request.flag & 2:
            return b""
        if state == ROLLED_BACK or not new:
            return encode_success(request)
        self._context.answer_when_stored(conn, request, encode_success(request))
        return None

    def _decide_cached(self, header: EndTransactionRequestHeader, state: int, now_ms: int) -> bool:
        """Decide about a cached half message. False if that is not possible; `_decide` then reports what is wrong."""
        offset = header.tran_state_table_offset
        half = self.half_cache.find(offset)
        if half is None:
            return False
        if (
            half.physical_offset != header.commit_log_offset
            or not self._half_queue.min_offset <= offset < self._half_queue.max_offset
            or not _is_from_group(half.properties, header.producer_group)
            or self._halves.state(offset) != OPEN  # also if it was copied: the decision is about the newest copy
            or not self._store.writable
        ):
            return False
        self.half_cache.remove(offset)  # before the append: if that fails, the decision is repeated from the log
        if state == COMMITTED:
            half.topic, half.queue_id = half.real_topic, half.real_queue_id
            half.properties = half.properties[: half.properties.rindex(_REAL_TOPIC) + 1]
            half.sys_flag |= COMMIT_FLAG
            half.prepared_offset = half.physical_offset
            self._context.writer.append(half, now_ms)
        self._halves.settle(offset, state)
        self._context.stats.decided(half.real_topic, state == COMMITTED, now_ms - half.born_ms)
        if self._ops.add(offset, now_ms):
            self._ops.write(now_ms)
        return True

    def _decide(self, header: EndTransactionRequestHeader, state: int, now_ms: int) -> bool:
        """Carry out a decision. False if the same decision was made before."""
        half = self._find(header)
        self._check(header, half, now_ms)
        copy = self._open_copy(half, state)
        if copy is None:
            return False
        if state == COMMITTED:
            if not self._store.writable:
                raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, self._store.refusal or "the store does not accept messages")
            committed = half.committed()
            self._context.deferral.put(committed, now_ms)
        self._halves.decide(half.origin, copy, state)
        self._context.stats.decided(half.real_topic, state == COMMITTED, now_ms - half.record.born_timestamp)
        self._checks.given_up.pop(half.origin, None)
        self._ops.add(copy, now_ms)
        if copy != half.origin:
            # Older copies may be above the saved offset; after a crash they are recognised by their origin.
            self._ops.add(half.origin, now_ms)
        if self._ops.is_due(now_ms) and self._store.writable:
            self._ops.write(now_ms)
        return True

    def _find(self, header: EndTransactionRequestHeader) -> Half:
        half = read_half(self._store, self._half_queue, header.tran_state_table_offset)
        if half is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"Find prepared transaction message failed: there is no half message {header.tran_state_table_offset}",
            )
        if half.record.physical_offset != header.commit_log_offset:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The commit log offset wrong: half message {half.offset} is not at {header.commit_log_offset}; "
                "use the offsets of the send reply or of the check request",
            )
        return half

    def _check(self, header: EndTransactionRequestHeader, half: Half, now_ms: int) -> None:
        immunity_ms = half.immunity_ms(self._context.settings.transaction_time_out)
        age_ms = now_ms - half.record.born_timestamp
        if not header.from_transaction_check and immunity_ms is not None and age_ms > immunity_ms:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"the transaction is {age_ms} ms old, its CHECK_IMMUNITY_TIME_IN_SECONDS allows {immunity_ms} ms; "
                "wait for the check request of the broker",
            )
        if half.producer_group != header.producer_group:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The producer group wrong: half message {half.offset} was not sent by group {header.producer_group}",
            )

    def _open_copy(self, half: Half, state: int) -> int | None:
        """Return the copy to decide about; None if the same decision was made before."""
        recovery = self._recovery
        if recovery is not None and half.offset < recovery.end:
            raise Refused(
                ResponseCode.SYSTEM_BUSY, "the broker is still recovering its transactions; it will check this one later"
            )
        copy = self._halves.open_copy(half.origin, half.offset)
        if copy is None and half.origin in self._checks.given_up:
            return half.offset
        if copy is None:
            known = self._halves.state(half.offset)
            if known != state:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"the transaction {half.unique_key} {_describe(known)}")
        return copy

    def _resume_check_half_message(self, conn: Connection, request: Command, now_ms: int) -> bytes | None:
        """Put a message that was given up back into the half topic, at an operator's request."""
        msg_id = ResumeCheckHalfMessageRequestHeader.decode(request.ext).msg_id or ""
        _, physical_offset = parse_offset_msg_id(msg_id)
        half = half_at(self._store, physical_offset, TRANS_CHECK_MAX_TIME_TOPIC)
        if half is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"Put message back to {TRANS_HALF_TOPIC} failed: {msg_id} is not a message of {TRANS_CHECK_MAX_TIME_TOPIC}",
            )
        self._checks.given_up.pop(half.origin, None)
        self._context.writer.deliver(half.reopened(), now_ms)
        response = encode_response(request, ResponseCode.SUCCESS, f"Put message back to {TRANS_HALF_TOPIC} success.")
        self._context.answer_when_stored(conn, request, response)
        return None

    @property
    def checks_sent(self) -> int:
        """The number of checks that were sent to producers since this broker became the master."""
        return self._checks.sent

    @property
    def open_count(self) -> int:
        """Half messages without a decision."""
        return self._halves.open_count(self._half_queue.max_offset)

    # Scheduling

    def tick(self, now_ms: int) -> bool:
        """Do the work that is due. Call it every 100 ms. Return True if more work is due than one tick may do."""
        if self._recovery is not None:
            self._recover(RECOVER_PER_TICK)
            return True
        try:
            if self._store.writable:
                self._write_ops(now_ms)
            more = self._checks.tick(now_ms)
        except StoreError:
            more = False  # an I/O error; the store is no longer writable
        self._save_progress(now_ms)
        return more

    def next_due_ms(self) -> int | None:
        """Return when the next checks are due; None if no half message is open."""
        return self._checks.next_due_ms()

    def stop(self, now_ms: int) -> None:
        """Write the pending op messages at shutdown."""
        if self._store.writable:
            self._ops.write(now_ms)

    def close(self, now_ms: int) -> None:
        """Save the progress for the last time, after the final flush of the log."""
        for _ in range(2):
            self._save_progress(now_ms)

    def _recover(self, limit: int) -> None:
        assert self._recovery is not None
        self._recovery.step(limit)
        if self._recovery.done:
            self._recovery = None

    def _write_ops(self, now_ms: int) -> None:
        if self._ops.is_due(now_ms):
            self._ops.write(now_ms)
        elif (
            self._store.appended_offset - self._ops.written_at > SEARCH_LIMIT
            and self._halves.first_open < self._half_queue.max_offset
        ):
            self._ops.write(now_ms, mark=True)

    def _save_progress(self, now_ms: int) -> None:
        unsaved = self._unsaved
        if unsaved is not None:
            if self._store.flushed_offset < unsaved.log_offset:
                return
            offsets = self._context.offsets
            for topic, offset in ((TRANS_HALF_TOPIC, unsaved.first_open), (TRANS_OP_HALF_TOPIC, unsaved.first_needed)):
                offsets.take_reset(SYSTEM_GROUP, topic, 0)  # an offset reset does not apply to this group
                offsets.commit(SYSTEM_GROUP, topic, 0, offset, now_ms)
            self._unsaved = None
        if not self._store.writable:
            return  # appended messages may never be written
        self._halves.skip_to(self._half_queue.min_offset)
        first_open = self._halves.advance(self._half_queue.max_offset)
        first_needed = self._ops.advance(first_open)
        if (first_open, first_needed) != self._taken[1:]:
            self._taken = self._unsaved = TransactionProgress(self._store.appended_offset, first_open, first_needed)


def _check_unknown(flag: int) -> None:
    """Accept UNKNOWN, after which the producer will be checked; reject any other value."""
    if flag != UNKNOWN_FLAG:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"commitOrRollback field wrong: it is {flag}; expected 8 to commit, 12 to roll back, 0 for unknown",
        )


def _is_from_group(raw: bytes, producer_group: str) -> bool:
    """Return whether PGROUP is this group. Checks the last occurrence only; unusual properties give False."""
    at = raw.rfind(b"\x02PGROUP\x01")
    return at >= 0 and producer_group != "" and raw.startswith(b"%b\x02" % producer_group.encode(), at + 8)


def _describe(state: int) -> str:
    if state in _STATE_NAMES:
        return f"was {_STATE_NAMES[state]} before; that cannot be changed"
    return "was decided before, or given up; nothing was done"
