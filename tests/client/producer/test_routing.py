from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from firearrow.client.connection.signing import Signer
from firearrow.client.message import MessageQueue
from firearrow.client.options import Credentials
from firearrow.client.producer.fault_avoidance import FaultTable
from firearrow.client.producer.routing import RoundRobin, Sender, SendTemplate, by_sharding_key
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import FLAG_ONEWAY, Command, encode_command
from firearrow.wire.headers.client import (
    SendBatchMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)


@dataclass(frozen=True)
class Queue:
    broker_name: str
    number: int


QUEUES = [Queue(broker, number) for broker in "ab" for number in range(3)]


def test_queues_are_chosen_in_turn() -> None:
    turns = RoundRobin()
    assert set(Counter(turns.choose(QUEUES) for _ in range(60)).values()) == {10}


def test_after_a_failure_another_broker_is_taken_if_there_is_one() -> None:
    turns = RoundRobin()
    assert {turns.choose(QUEUES, "a").broker_name for _ in range(20)} == {"b"}
    assert len({turns.choose(QUEUES, "a") for _ in range(20)}) == 3
    assert turns.choose(QUEUES[:1], "a") == QUEUES[0]


def test_avoided_brokers_are_skipped() -> None:
    turns, faults = RoundRobin(), FaultTable()
    faults.failed("a", 1, now_ms=0, reachable=True)
    assert {turns.choose_available(QUEUES, faults, 1).broker_name for _ in range(20)} == {"b"}
    faults.failed("b", 1, now_ms=1, reachable=False)
    assert {turns.choose_available(QUEUES, faults, 2).broker_name for _ in range(20)} == {"a"}  # slow, but it can be reached
    assert {turns.choose_available(QUEUES, faults, 2, "a").broker_name for _ in range(20)} == {"b"}
    faults.failed("a", 1, now_ms=3, reachable=False)
    assert {turns.choose_available(QUEUES, faults, 4).broker_name for _ in range(20)} == {"b"}  # the one that is back earlier
    assert len({turns.choose_available(QUEUES, faults, 99_999).broker_name for _ in range(20)}) == 2


@pytest.mark.parametrize(("key", "index"), [("order-7", 0), ("", 0), ("a", 1), ("polygenelubricants", 0)])
def test_a_key_has_its_queue_as_in_java(key: str, index: int) -> None:
    # "order-7".hashCode() is -1207109572, "a".hashCode() 97, "polygenelubricants".hashCode() Integer.MIN_VALUE
    assert by_sharding_key(4, key) == index


# ---- the preformatted send request against the header class that declares it

NAMED = MessageQueue("100% Orders", 'broker-"a"', 3)


class SendReplyMessageRequestHeaderV2(SendMessageRequestHeader, code=RequestCode.SEND_REPLY_MESSAGE_V2, short_keys=True):
    pass


@pytest.mark.parametrize("signer", [None, Signer(Credentials("key", "secret"))], ids=["unsigned", "signed"])
@pytest.mark.parametrize("oneway", [False, True])
@pytest.mark.parametrize(
    "header_class", [SendMessageRequestHeaderV2, SendBatchMessageRequestHeader, SendReplyMessageRequestHeaderV2]
)
def test_send_template_formats_what_the_header_class_encodes(
    header_class: type[SendMessageRequestHeader], oneway: bool, signer: Signer | None
) -> None:
    batch = header_class is SendBatchMessageRequestHeader
    header = header_class(
        producer_group="orders", topic=NAMED.topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=NAMED.queue_id,
        sys_flag=9, born_timestamp=1_794_786_595_550, flag=7, properties="KEYS\x01ключ\x02", batch=batch, bname=NAMED.broker_name,
    )  # fmt: skip
    assert header.CODE is not None
    fields = header.encode() if signer is None else signer.signed(header.encode(), b"body")
    expected = Command(header.CODE, 5, FLAG_ONEWAY if oneway else 0, "PYTHON", ext=fields, body=b"body")

    template = SendTemplate(header.CODE, Sender("orders", "PYTHON", signer), NAMED, oneway=oneway)

    assert template.frame(9, 1_794_786_595_550, 7, "KEYS\x01ключ\x02", 5, b"body") == encode_command(expected)
