"""Validation of the properties and flags that clients may not send.

Most reserved names belong to the broker or the client library. Clients send them all the time, because a consumed message that is
forwarded keeps all the properties it was stored with (REAL_TOPIC and REAL_QID of a delayed message, TIMER_OUT_MS,
ORIGIN_MESSAGE_ID, RETRY_TOPIC, __transactionId__ ...). Those are accepted, or replaced (handler.py, deferred/). Rejected with 13
are only those that would make the broker do something wrong:

    INNER_NUM, INNER_BASE          the size of an inner batch: only with its flag, and no topic here takes inner batches
    sysFlag 0x80                   inner batch: consumers would get its body as one message
    TIMER_DEL_UNIQKEY              recalls a timer message; clients use request 370 for that
    __PRODUCER_ID, __PRODUCER_SEQ  one without the other, or not in the form that dedup.py describes
    DELAY, TRAN_MSG of a batch     a batch is stored in its topic at once and cannot be deferred

Other flags of the broker are removed: the address families (0x10, 0x20), 0x40, and 0x4, "half message" or "rolled back". The
property TRAN_MSG marks a half message; one with the flag alone would be acknowledged and never delivered.
"""

from __future__ import annotations

from typing import Final

from firearrow.broker.requests.responses import Refused
from firearrow.wire import properties
from firearrow.wire.codes import ResponseCode
from firearrow.wire.record import (
    COMPRESSED,
    COMPRESSION_TYPE,
    INNER_BATCH,
    MULTI_TAGS,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_TYPE,
)

PLAIN_FLAGS: Final = COMPRESSED | MULTI_TAGS | TRANSACTION_COMMIT | COMPRESSION_TYPE  # stored as sent
SUSPICIOUS: Final = b"ER_"
"""A part of every name above, and of no name in ordinary messages: the hot path searches for this only."""

MAX_PRODUCER_ID_BYTES: Final = 128
MAX_SEQUENCE: Final = 2**63 - 1

_INNER_NAMES: Final = (b"INNER_NUM", b"INNER_BASE")


def stored_flags(sys_flag: int) -> int:
    """Return the sysFlag to store for one that is not plain."""
    if sys_flag & INNER_BATCH:
        raise _illegal(f"sysFlag {sys_flag:#x} says inner batch, which no topic of this broker takes; send a batch (320) instead")
    if sys_flag & TRANSACTION_PREPARED:
        sys_flag &= ~TRANSACTION_TYPE
    return sys_flag & PLAIN_FLAGS


def check(raw: bytes) -> tuple[str, int] | None:
    """Validate properties that contain SUSPICIOUS. Return producer id and sequence number if the message has them."""
    for name in _INNER_NAMES:
        if properties.find(raw, name) is not None:
            raise _illegal(f"the property {name.decode()} belongs to inner batches, which no topic of this broker takes")
    if properties.find(raw, b"TIMER_DEL_UNIQKEY") is not None:
        raise _illegal("the property TIMER_DEL_UNIQKEY is reserved; recall a timer message with RECALL_MESSAGE (370)")
    return producer_sequence(raw)


def check_batch(sys_flag: int, raw: bytes) -> None:
    """Validate the flags and properties of a batch as a whole."""
    if sys_flag & TRANSACTION_TYPE or properties.find(raw, b"TRAN_MSG") == b"true":
        raise _illegal("a batch cannot be part of a transaction; send its messages one by one")
    level = properties.find(raw, b"DELAY")
    if level is not None and level != b"0" and not level.startswith(b"-"):
        raise _illegal(f"a batch cannot be delayed, its DELAY is {level[:32]!r}; send its messages one by one")


def producer_sequence(raw: bytes) -> tuple[str, int] | None:
    producer, sequence = properties.find(raw, b"__PRODUCER_ID"), properties.find(raw, b"__PRODUCER_SEQ")
    if producer is None and sequence is None:
        return None
    if producer is None or sequence is None:
        raise _illegal("__PRODUCER_ID and __PRODUCER_SEQ belong together; send both or neither")
    if len(producer) > MAX_PRODUCER_ID_BYTES:
        raise _illegal(f"__PRODUCER_ID has {len(producer)} bytes, at most {MAX_PRODUCER_ID_BYTES} are allowed")
    if not sequence.isdigit() or len(sequence) > 19 or int(sequence) > MAX_SEQUENCE:
        raise _illegal(f"__PRODUCER_SEQ is {sequence[:32]!r}; expected a number from 0 to {MAX_SEQUENCE}")
    return producer.decode("utf-8", "replace"), int(sequence)


def _illegal(text: str) -> Refused:
    return Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {text}")
