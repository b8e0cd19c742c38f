"""Transactions: a message that is delivered when its producer says so, and not before.

    producer                        broker
    send, TRAN_MSG=true      -->    half topic                                              nobody can consume it
    its own work, then
    END_TRANSACTION 8 (37)   -->    the message goes to its real queue, then the op topic   half_messages.py
    or END_TRANSACTION 12    -->    the op topic                                            transaction_ops.py
    or nothing, or 0         <--    "what became of it?" (39), again and again              transaction_check.py

Everything that is known is in the two topics; how far they are worked off is saved as two consumer offsets of CID_RMQ_SYS_TRANS
(transaction_recovery.py, transaction_state.py). What was sent a moment ago is in the memory too (transaction_recent.py).

What is promised
- A half message stays open until a decision about it is stored, or it was given up: the offsets are saved only when the log is
  durable up to where it ended when they were true.
- A message is committed once, however often and about whichever of its copies its producer decides: in one life of the broker
  because the state is exact, after a crash because commits are found in the log.
- A decision about a message that was given up comes too late, but is carried out, as long as the broker was not restarted since.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from firearrow.broker.context import BrokerContext, Handler
from firearrow.broker.message import COMMITTED as COMMIT_FLAG
from firearrow.broker.message import BrokerMessage
from firearrow.broker.requests.responses import Refused
from firearrow.broker.transaction.checker import TransactionChecks
from firearrow.broker.transaction.half_message import SYSTEM_GROUP, Half, half_at, hold_as_half, is_half, read_half
from firearrow.broker.transaction.op_queue import OpMessages
from firearrow.broker.transaction.recovery import Recovery, saved_offset
from firearrow.broker.transaction.state import COMMITTED, OPEN, ROLLED_BACK, HalfStates
from firearrow.broker.transaction.transaction_recent import HalfMessageCache, properties_when_committed
from firearrow.net.address import parse_address
from firearrow.store.errors import StoreError
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers.admin import ResumeCheckHalfMessageRequestHeader
from firearrow.wire.headers.client import EndTransactionRequestHeader
from firearrow.wire.message_ids import host_bytes, parse_offset_msg_id
from firearrow.wire.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC

if TYPE_CHECKING:
    from firearrow.net.server import Connection

log = logging.getLogger("firearrow.broker")

ROLLBACK_FLAG = 0xC
UNKNOWN_FLAG = 0
LEARN_AT_START = 3_000  # open halves that are looked at before the ports open
LEARN_A_TICK = 500
SEARCH_LIMIT = 64 * 1024 * 1024  # bytes of log that a recovery may have to search for commits

_LENGTHS = Struct(">II")
# The JSON header of a success, to be formatted with the request's number.
_SUCCESS = encode_response(Command(0, opaque=0), ResponseCode.SUCCESS)[_LENGTHS.size :].replace(b'"opaque":0', b'"opaque":%d')
_FATES = {COMMIT_FLAG: COMMITTED, ROLLBACK_FLAG: ROLLED_BACK}
_SAID = {COMMITTED: "committed", ROLLED_BACK: "rolled back"}


class TransactionProgress(NamedTuple):
    """How far the two queues are worked off, and up to where the log must be durable before anybody may rely on it."""

    log_offset: int
    first_open: int
    first_needed: int


class Transactions:
    """The transactions of one broker. The store must be open and the consumer offsets loaded."""

    def __init__(self, parts: BrokerContext, now_ms: int) -> None:
        self._parts = parts
        self._store = parts.store
        self._half_queue = self._store.queue(TRANS_HALF_TOPIC, 0)
        self._op_queue = self._store.queue(TRANS_OP_HALF_TOPIC, 0)
        self.checks_answered = 0
        self.activate(now_ms)

    def activate(self, now_ms: int) -> None:
        """Load the state from the log, at the start and whenever this broker becomes the master."""
        parts, store = self._parts, self._store
        host = host_bytes(*parse_address(parts.address))
        self._recent = HalfMessageCache()
        self._halves = HalfStates(saved_offset(parts.offsets, self._half_queue))
        self._ops = OpMessages(parts.settings, parts.inner, host, saved_offset(parts.offsets, self._op_queue))
        self._recovery: Recovery | None = Recovery(store, self._half_queue, self._op_queue, self._halves, self._ops)
        self._recovery.begin(now_ms)
        self._learn(LEARN_AT_START)
        self._checks = TransactionChecks(parts, self._half_queue, self._halves, self._ops, host)
        self._noted = TransactionProgress(0, self._halves.first_open, self._ops.first_needed)
        self._unsaved: TransactionProgress | None = None

    # Half messages.

    def defer(self, message: BrokerMessage, now_ms: int) -> bool:
        """Redirect a half message to the half topic; False for any other message."""
        if not is_half(message):
            return False
        if self._parts.settings.reject_transaction_message:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._parts.name}] sending transaction message is forbidden (rejectTransactionMessage is true)",
            )
        raw = message.properties
        if raw.find(b"DEL") >= 0:  # as in DeferralRouter.put: it may ask to be delayed when it is committed
            self._parts.deferral.check(message, now_ms)
        elif raw.find(b"CHECK_IMMUNITY") < 0:
            message.on_stored = self._recent.keep
        hold_as_half(message)
        return True

    # Decisions.

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self._receive_decision,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume_check_half_message,
        }

    def _receive_decision(self, conn: Connection, request: Command, now_ms: int) -> bytes | None:
        try:
            header = request.header or EndTransactionRequestHeader.decode(request.ext)
            if header.from_transaction_check:
                self.checks_answered += 1
            fate = _FATES.get(header.commit_or_rollback)
            if fate is None:
                _check_unknown(header.commit_or_rollback)
                return None
            new = self._decide_recent(header, fate, now_ms) or self._decide(header, fate, now_ms)
        except Refused as refused:
            if request.is_oneway:  # as it nearly always is: the producer will not hear of it
                log.info("a decision about a transaction, from %s, was refused: %s", conn.peer, refused.remark)
            raise
        if request.flag & 2:
            return b""
        if fate == ROLLED_BACK or not new:
            return _success(request)
        self._parts.answer_when_stored(conn, request, _success(request))
        return None

    def _decide_recent(self, header: EndTransactionRequestHeader, fate: int, now_ms: int) -> bool:
        """The short way, for a half that is remembered. False if it does not lead there: the long one tells what is wrong."""
        offset = header.tran_state_table_offset
        half = self._recent.find(offset)
        if half is None:
            return False
        if (
            half.physical_offset != header.commit_log_offset
            or not self._half_queue.min_offset <= offset < self._half_queue.max_offset
            or not _is_of_group(half.properties, header.producer_group)
            or self._halves.fate(offset) != OPEN  # also if it was copied: then the newest copy is what is decided about
            or not self._store.writable
        ):
            return False
        self._recent.forget(offset)  # before the append, which may fail: then the decision is repeated from the log
        if fate == COMMITTED:
            half.topic, half.queue_id = half.real_topic, half.real_queue_id
            half.properties = properties_when_committed(half.properties)
            half.sys_flag |= COMMIT_FLAG
            half.prepared_offset = half.physical_offset
            self._parts.inner.append(half, now_ms)
        self._halves.settle(offset, fate)
        self._parts.stats.decided(half.real_topic, fate == COMMITTED, now_ms - half.born_ms)
        if self._ops.add(offset, now_ms):
            self._ops.write(now_ms)
        return True

    def _decide(self, header: EndTransactionRequestHeader, fate: int, now_ms: int) -> bool:
        """False if the same was decided before."""
        half = self._find(header)
        self._check(header, half, now_ms)
        copy = self._open_copy(half, fate)
        if copy is None:
            return False
        if fate == COMMITTED:
            if not self._store.writable:
                raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, self._store.refusal or "the store takes no messages")
            committed = half.committed()
            self._parts.deferral.put(committed, now_ms)
        self._halves.decide(half.origin, copy, fate)
        self._parts.stats.decided(half.real_topic, fate == COMMITTED, now_ms - half.record.born_timestamp)
        self._checks.given_up.pop(half.origin, None)
        self._ops.add(copy, now_ms)
        if copy != half.origin:
            # Older copies may still lie above the saved offset: after a crash they are known by their origin.
            self._ops.add(half.origin, now_ms)
        if self._ops.due(now_ms) and self._store.writable:
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
                "decide with the offsets that the send, or the check, told",
            )
        return half

    def _check(self, header: EndTransactionRequestHeader, half: Half, now_ms: int) -> None:
        immunity_ms = half.immunity_ms(self._parts.settings.transaction_time_out)
        age_ms = now_ms - half.record.born_timestamp
        if not header.from_transaction_check and immunity_ms is not None and age_ms > immunity_ms:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"the transaction is {age_ms} ms old, its CHECK_IMMUNITY_TIME_IN_SECONDS allows {immunity_ms} ms; "
                "decide when the broker asks",
            )
        if half.producer_group != header.producer_group:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The producer group wrong: half message {half.offset} was not sent by group {header.producer_group}",
            )

    def _open_copy(self, half: Half, fate: int) -> int | None:
        """The copy that a decision is about; None if the same was decided before."""
        recovery = self._recovery
        if recovery is not None and half.offset < recovery.end:
            raise Refused(ResponseCode.SYSTEM_BUSY, "the broker is still looking through its transactions; it will ask again")
        copy = self._halves.open_copy(half.origin, half.offset)
        if copy is None and half.origin in self._checks.given_up:
            return half.offset
        if copy is None:
            known = self._halves.fate(half.offset)
            if known != fate:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"the transaction {half.unique_key} {_what_became(known)}")
        return copy

    def _resume_check_half_message(self, conn: Connection, request: Command, now_ms: int) -> bytes | None:
        """An operator wants a message that was given up to be asked about again."""
        msg_id = ResumeCheckHalfMessageRequestHeader.decode(request.ext).msg_id or ""
        _, physical_offset = parse_offset_msg_id(msg_id)
        half = half_at(self._store, physical_offset, TRANS_CHECK_MAX_TIME_TOPIC)
        if half is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"Put message back to {TRANS_HALF_TOPIC} failed: {msg_id} is no message of {TRANS_CHECK_MAX_TIME_TOPIC}",
            )
        self._checks.given_up.pop(half.origin, None)
        self._parts.inner.deliver(half.reopened(), now_ms)
        answer = encode_response(request, ResponseCode.SUCCESS, f"Put message back to {TRANS_HALF_TOPIC} success.")
        self._parts.answer_when_stored(conn, request, answer)
        return None

    @property
    def checks_sent(self) -> int:
        """The number of checks that were sent to producers since this broker became the master."""
        return self._checks.sent

    @property
    def open_count(self) -> int:
        """How many half messages wait for a decision."""
        return self._halves.open_count(self._half_queue.max_offset)

    # Time.

    def tick(self, now_ms: int) -> bool:
        """Does what is due; call it every 100 ms or so. True if there is more, to be done soon."""
        if self._recovery is not None:
            self._learn(LEARN_A_TICK)
            return True
        try:
            if self._store.writable:
                self._write_ops(now_ms)
            more = self._checks.tick(now_ms)
        except StoreError:
            more = False  # the disk failed in this moment; whoever comes next is told
        self._save_progress(now_ms)
        return more

    def next_due_ms(self) -> int | None:
        """When producers will be asked; None: nothing waits for a decision."""
        return self._checks.next_due_ms()

    def stop(self, now_ms: int) -> None:
        """What was decided and is not in the op topic yet goes there."""
        if self._store.writable:
            self._ops.write(now_ms)

    def close(self, now_ms: int) -> None:
        """The log is as durable as it will be: how far the queues are worked off is told for the last time."""
        for _ in range(2):
            self._save_progress(now_ms)

    def _learn(self, limit: int) -> None:
        assert self._recovery is not None
        self._recovery.step(limit)
        if self._recovery.done:
            self._recovery = None

    def _write_ops(self, now_ms: int) -> None:
        if self._ops.due(now_ms):
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
            offsets = self._parts.offsets
            for topic, offset in ((TRANS_HALF_TOPIC, unsaved.first_open), (TRANS_OP_HALF_TOPIC, unsaved.first_needed)):
                offsets.take_reset(SYSTEM_GROUP, topic, 0)  # nobody can send this group elsewhere
                offsets.commit(SYSTEM_GROUP, topic, 0, offset, now_ms)
            self._unsaved = None
        if not self._store.writable:
            return  # what was appended may never be written
        self._halves.skip_to(self._half_queue.min_offset)
        first_open = self._halves.advance(self._half_queue.max_offset)
        first_needed = self._ops.advance(first_open)
        if (first_open, first_needed) != self._noted[1:]:
            self._noted = self._unsaved = TransactionProgress(self._store.appended_offset, first_open, first_needed)


def _success(request: Command) -> bytes:
    if request.binary:
        return encode_response(request, ResponseCode.SUCCESS)
    header = _SUCCESS % request.opaque
    return _LENGTHS.pack(len(header) + 4, len(header)) + header


def _check_unknown(flag: int) -> None:
    """A decision that is neither: the producer does not know yet, and will be asked, or says what nobody understands."""
    if flag != UNKNOWN_FLAG:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"commitOrRollback field wrong: it is {flag}; expected 8 to commit, 12 to roll back, 0 for unknown",
        )


def _is_of_group(raw: bytes, producer_group: str) -> bool:
    """Whether properties say that this group has sent the message; a look at one place, where what is unusual fails."""
    at = raw.rfind(b"\x02PGROUP\x01")
    return at >= 0 and producer_group != "" and raw.startswith(b"%b\x02" % producer_group.encode(), at + 8)


def _what_became(fate: int) -> str:
    if fate in _SAID:
        return f"was {_SAID[fate]} before; that cannot be changed"
    return "was decided before, or given up; nothing was done"
