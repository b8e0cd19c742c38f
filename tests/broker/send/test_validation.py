"""Properties and flags that a client may not send."""

from __future__ import annotations

import pytest

from firearrow.broker.requests.responses import Refused
from firearrow.broker.send.validation import (
    MAX_PRODUCER_ID_BYTES,
    MAX_SEQUENCE,
    PLAIN_FLAGS,
    SUSPICIOUS,
    check,
    check_batch,
    stored_flags,
)
from firearrow.wire import properties
from firearrow.wire.codes import ResponseCode
from firearrow.wire.record import COMPRESSED, INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_TYPE

RESERVED = ["INNER_NUM", "INNER_BASE", "TIMER_DEL_UNIQKEY", "__PRODUCER_ID", "__PRODUCER_SEQ"]


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_property_is_rejected_with_its_name(name: str) -> None:
    raw = properties.encode({"KEYS": "k", name: "1"})
    assert SUSPICIOUS in raw, "the hot path would not call check"
    with pytest.raises(Refused, match=name) as refused:
        check(raw)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_reserved_name_within_a_value_is_accepted() -> None:
    assert check(properties.encode({"KEYS": "INNER_NUM", "ORDER_ID": "7"})) is None


@pytest.mark.parametrize(("producer", "sequence"), [("p", 0), ("p" * MAX_PRODUCER_ID_BYTES, MAX_SEQUENCE)])
def test_producer_id_and_sequence_are_returned(producer: str, sequence: int) -> None:
    raw = properties.encode({"__PRODUCER_ID": producer, "__PRODUCER_SEQ": str(sequence)})
    assert check(raw) == (producer, sequence)


@pytest.mark.parametrize(
    ("producer", "sequence", "says"),
    [
        ("p", "-1", "-1"),
        ("p", "1.5", "1.5"),
        ("p", str(MAX_SEQUENCE + 1), "from 0 to"),
        ("p", "0" * 20, "from 0 to"),
        ("p" * (MAX_PRODUCER_ID_BYTES + 1), "1", "at most 128"),
    ],
)
def test_malformed_producer_properties_are_rejected(producer: str, sequence: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        check(properties.encode({"__PRODUCER_ID": producer, "__PRODUCER_SEQ": sequence}))


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (PLAIN_FLAGS, PLAIN_FLAGS),
        (COMPRESSED | 0x10 | 0x20 | 0x40, COMPRESSED),
        (COMPRESSED | TRANSACTION_PREPARED, COMPRESSED),
        (TRANSACTION_TYPE, 0),
        (TRANSACTION_COMMIT, TRANSACTION_COMMIT),
    ],
)
def test_flags_of_the_broker_are_removed(sent: int, stored: int) -> None:
    assert stored_flags(sent) == stored


def test_inner_batch_flag_is_rejected() -> None:
    with pytest.raises(Refused, match="0x81 says inner batch"):
        stored_flags(INNER_BATCH | COMPRESSED)


@pytest.mark.parametrize(
    ("sys_flag", "names", "says"),
    [
        (TRANSACTION_PREPARED, {}, "part of a transaction"),
        (0, {"TRAN_MSG": "true"}, "part of a transaction"),
        (0, {"DELAY": "3"}, "DELAY is b'3'"),
    ],
)
def test_deferred_batch_is_rejected(sys_flag: int, names: dict[str, str], says: str) -> None:
    with pytest.raises(Refused, match=says):
        check_batch(sys_flag, properties.encode(names))


@pytest.mark.parametrize("names", [{}, {"DELAY": "0"}, {"DELAY": "-1"}, {"TRAN_MSG": "false"}])
def test_plain_batch_is_accepted(names: dict[str, str]) -> None:
    check_batch(COMPRESSED, properties.encode(names))
