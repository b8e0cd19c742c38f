"""Which properties and flags a client may not send.

Most reserved names are the broker's or the client library's own, and yet clients send them all the time: a message that was
consumed and is sent on brings everything along that it was stored with (REAL_TOPIC and REAL_QID of one that was delayed,
TIMER_OUT_MS, ORIGIN_MESSAGE_ID, RETRY_TOPIC, __transactionId__ ...). Those are taken as they come, or made anew (send.py,
placing.py). Refused with 13 is only what would make the broker say or do something that is not so:

    INNER_NUM, INNER_BASE          how many messages an inner batch holds: only with that flag, and there are no such topics here
    sysFlag 0x80                   inner batch: its body would be handed to consumers as if it were one message
    TIMER_DEL_UNIQKEY              takes somebody's timer message back; that is what recall (370) is for
    __PRODUCER_ID, __PRODUCER_SEQ  one without the other, or not of the form that dedup.py describes
    DELAY, TRAN_MSG of a batch     a batch is stored where it is sent to, at once: it cannot wait for a time or a decision

Other flags that are the broker's own are taken out: the kind of the addresses (0x10, 0x20), 0x40, and 0x4, "half of a
transaction" or "rolled back". What half of a transaction is, the property TRAN_MSG says; a message with the flag alone would be
acknowledged and never be seen.
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

PLAIN_FLAGS: Final = COMPRESSED | MULTI_TAGS | TRANSACTION_COMMIT | COMPRESSION_TYPE  # stored as the client says
SUSPICIOUS: Final = b"ER_"
"""Every name above contains it, and no name that ordinary messages have: the one thing the hot path looks for."""

MAX_PRODUCER_ID_BYTES: Final = 128
MAX_SEQUENCE: Final = 2**63 - 1

_INNER_NAMES: Final = (b"INNER_NUM", b"INNER_BASE")


def stored_flags(sys_flag: int) -> int:
    """The sysFlag to store for one that is not plain."""
    if sys_flag & INNER_BATCH:
        raise _illegal(f"sysFlag {sys_flag:#x} says inner batch, which no topic of this broker takes; send a batch (320) instead")
    if sys_flag & TRANSACTION_PREPARED:
        sys_flag &= ~TRANSACTION_TYPE
    return sys_flag & PLAIN_FLAGS


def check(raw: bytes) -> tuple[str, int] | None:
    """Looks at properties that contain SUSPICIOUS. Gives producer id and sequence number, if the message has them."""
    for name in _INNER_NAMES:
        if properties.find(raw, name) is not None:
            raise _illegal(f"the property {name.decode()} belongs to inner batches, which no topic of this broker takes")
    if properties.find(raw, b"TIMER_DEL_UNIQKEY") is not None:
        raise _illegal("the property TIMER_DEL_UNIQKEY is the broker's own; take a timer message back with RECALL_MESSAGE (370)")
    return producer_sequence(raw)


def check_batch(sys_flag: int, raw: bytes) -> None:
    """Looks at the flags and properties that a batch has as a whole."""
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
        raise _illegal(f"__PRODUCER_ID has {len(producer)} bytes, at most {MAX_PRODUCER_ID_BYTES} are taken")
    if not sequence.isdigit() or len(sequence) > 19 or int(sequence) > MAX_SEQUENCE:
        raise _illegal(f"__PRODUCER_SEQ is {sequence[:32]!r}; expected a number from 0 to {MAX_SEQUENCE}")
    return producer.decode("utf-8", "replace"), int(sequence)


def _illegal(text: str) -> Refused:
    return Refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {text}")
