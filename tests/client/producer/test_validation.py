from __future__ import annotations

from typing import Any

import pytest

from firearrow.aio import Producer
from firearrow.client.errors import InvalidMessageError
from firearrow.client.message import Message
from firearrow.client.producer.validation import check_body, check_group_name, check_sendable_topic, properties_text
from firearrow.wire.properties import parse
from tests.client.fake_broker import FakeBroker
from tests.support.waiting import run


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message("T", b""), "is empty"),
        (Message("T", "text"), "is of type str, expected bytes: encode it first"),  # type: ignore[arg-type]
        (Message("T", b"x" * 101), "has 101 bytes, more than max_message_size 100"),
        (Message("T", b"x", tags=""), "tags is ''"),
        (Message("T", b"x", tags="a\x02b"), "without U\\+0001 and U\\+0002"),
        (Message("T", b"x", keys=["a b"]), "'a b', expected a non-empty string without spaces"),
        (Message("T", b"x", keys=[""]), "the key is ''"),
        (Message("T", b"x", keys=[7]), "the key is 7"),  # type: ignore[list-item]
        (Message("T", b"x", properties={"": "x"}), "the property name is ''"),
        (Message("T", b"x", properties={"n": ""}), "n is ''"),
        (Message("T", b"x", properties={"n": 1}), "n is 1, expected a non-empty string"),  # type: ignore[dict-item]
        (Message("T", b"x", properties={"n\x01": "1"}), "property name"),
        (Message("T", b"x", properties={"DELAY": "3"}), "'DELAY' is reserved"),
        (Message("T", b"x", properties={"UNIQ_KEY": "3"}), "'UNIQ_KEY' is reserved"),
        (Message("T", b"x", properties={"n": "ü" * 17000}), "take 340\\d\\d bytes, the limit is 32767"),
        (Message("", b"x"), "topic is blank"),
        (Message("a b", b"x"), "illegal characters"),
        (Message("x" * 128, b"x"), "longer than the maximum 127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "it belongs to the broker"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_messages_are_rejected_before_sending(message: Message, why: str) -> None:
    async def story() -> None:
        broker = await FakeBroker().start()
        async with Producer(broker.address, max_message_size=100) as producer:
            with pytest.raises(InvalidMessageError, match=why):
                await producer.send(message)
            with pytest.raises(InvalidMessageError, match=why):
                await producer.send_batch([message])
            with pytest.raises(InvalidMessageError, match=why):
                await producer.send_oneway(message)
            with pytest.raises(ValueError, match=why):
                await producer.send_nowait(message)
        assert broker.sends == []
        await broker.stop()

    run(story())


def test_all_properties_are_written_and_read_back() -> None:
    message = Message(
        "T", b"x", tags="tag", keys=["a", "b"], properties={"own": "välue", "TRACE_CONTEXT": "00-1"}, wait_store=False
    )
    assert parse(properties_text(message, "ID", {"DELAY": "3"})) == {
        "UNIQ_KEY": "ID", "WAIT": "false", "TAGS": "tag", "KEYS": "a b", "own": "välue", "TRACE_CONTEXT": "00-1", "DELAY": "3",
    }  # fmt: skip
    assert parse(properties_text(Message("T", b"x", keys="one two"), "ID"))["KEYS"] == "one two"


def test_bytes_of_any_kind_are_a_body() -> None:
    for body in (b"x", bytearray(b"x"), memoryview(b"x")):
        check_body(Message("T", body), 10)  # type: ignore[arg-type]  # the type says bytes; these do as well


def test_names_of_groups() -> None:
    check_group_name("orders_1-x")
    for group in ("", "a b", "x" * 256, "ü"):
        with pytest.raises(InvalidMessageError, match="group"):
            check_group_name(group)
    check_sendable_topic("%RETRY%g")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"retries": -1}, "retries is -1, expected a number of at least 0"),
        ({"send_timeout": 0}, "send_timeout is 0"),
        ({"compression": "rar"}, "'rar', expected zlib"),
        ({"group": "no spaces"}, "illegal characters"),
        ({"heartbeat_interval": "soon"}, "heartbeat_interval is 'soon'"),
        ({"language": "KLINGON"}, "language is 'KLINGON'"),
        ({"instance_name": "a@b"}, "instance_name is 'a@b'"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Producer("127.0.0.1:9876", **options)
