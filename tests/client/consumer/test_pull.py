"""Pull requests and the lazily decoded messages of their responses."""

from __future__ import annotations

import asyncio
import random
import zlib

import pytest

from firearrow.client.compression import MAX_INFLATED
from firearrow.client.connection import instance
from firearrow.client.consumer.pull import Puller, PullStatus, decode_messages
from firearrow.client.consumer.subscription import subscription
from firearrow.client.errors import DecompressionError
from firearrow.client.message import MessageQueue, ReceivedMessage, received
from firearrow.client.options import client_options
from firearrow.net.server import Connection
from firearrow.wire import properties
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.errors import ProtocolError
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.record import BORN_HOST_V6, COMPRESSED, COMPRESSION_ZLIB, STORE_HOST_V6, Record, encode
from tests.client.fake_broker import FakeBroker

V4_9_7, V5_5_0 = 405, 513
NOTHING = {"nextBeginOffset": 0, "minOffset": 0, "maxOffset": 0, "suggestWhichBrokerId": 0}


def answer_nothing(conn: Connection, command: Command) -> None:
    conn.write(encode_response(command, ResponseCode.PULL_NOT_FOUND, None, NOTHING))


@pytest.mark.parametrize(
    ("version", "lite", "code"),
    [
        (V5_5_0, True, RequestCode.LITE_PULL_MESSAGE),
        (V4_9_7, True, RequestCode.PULL_MESSAGE),
        (0, True, RequestCode.PULL_MESSAGE),
        (V5_5_0, False, RequestCode.PULL_MESSAGE),
    ],
    ids=["pull consumer, 5.5.0", "pull consumer, 4.9.7", "pull consumer, version unknown", "push consumer"],
)
def test_request_code_matches_the_broker_version(
    version: int, lite: bool, code: RequestCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        broker = await FakeBroker().start()
        broker.other = {RequestCode.LITE_PULL_MESSAGE: answer_nothing, RequestCode.PULL_MESSAGE: answer_nothing}
        ours = await instance.acquire(client_options(broker.address), consumer_group="g")
        await ours.route("T")
        monkeypatch.setattr(ours, "broker_version", lambda address: version)
        result = await Puller(ours, "g", lite=lite).pull(
            MessageQueue("T", "broker-a", 0), 0, subscription("T", "new", 1), suspend_ms=0
        )
        assert result.status is not PullStatus.FOUND
        (pull,) = [command for command in broker.seen if command.code in broker.other]
        assert (pull.code, pull.ext.get("subscription")) == (code, "new" if lite else None)
        await ours.release()
        await broker.stop()

    asyncio.run(asyncio.wait_for(story(), 60))


QUEUE = MessageQueue("T", "broker-a", 3)
FIELDS = (
    "queue_offset", "store_size", "body", "tags", "keys", "properties", "msg_id", "offset_msg_id", "reconsume_times", "topic",
    "queue", "queue_id", "commit_log_offset", "born_ms", "born_host", "store_ms", "store_host", "flag", "sys_flag",
    "prepared_transaction_offset",
)  # fmt: skip


def records() -> list[Record]:
    dice = random.Random(11)
    made = []
    for offset in range(60):
        known = {"UNIQ_KEY": f"{offset:032X}", "MYTAGS": "no"} if offset % 3 else {}
        if offset % 2:
            known |= {"TAGS": f"täg{offset}", "KEYS": "a b", "own": "TAGS\x01"[:4]}
        body = dice.randbytes(dice.randrange(300))
        sys_flag = 0
        if offset % 7 == 0:
            body, sys_flag = zlib.compress(body), COMPRESSED | COMPRESSION_ZLIB
        if offset % 5 == 0:
            sys_flag |= BORN_HOST_V6
        if offset % 10 == 0:
            sys_flag |= STORE_HOST_V6
        made.append(
            Record(
                "T", body, properties.encode(known), 3, offset, 1000 + offset, offset * 500, sys_flag, offset,
                bytes(20 if sys_flag & BORN_HOST_V6 else 8), offset + 1, bytes(20 if sys_flag & STORE_HOST_V6 else 8),
                offset % 4, 7, 2 if offset % 11 == 0 else 1,
            )
        )  # fmt: skip
    return made


@pytest.mark.parametrize("first_look", FIELDS)
def test_lazy_fields_equal_the_decoded_record(first_look: str) -> None:
    expected = [received(record, "broker-a", restore_topic=True) for record in records()]
    messages = decode_messages(b"".join(encode(record) for record in records()), QUEUE)
    assert len(messages) == len(expected)
    for message, wanted in zip(messages, expected, strict=True):
        for name in (first_look, *FIELDS, first_look):
            assert getattr(message, name) == getattr(wanted, name), name


@pytest.mark.parametrize("topic", ["T", "%RETRY%g"])
def test_bodies_of_a_response_are_decompressed_up_to_a_common_limit(topic: str) -> None:
    bomb = Record(topic, zlib.compress(bytes(MAX_INFLATED // 2)), sys_flag=COMPRESSED | COMPRESSION_ZLIB)
    messages = decode_messages(encode(bomb) * 8, MessageQueue(topic, "broker-a", 0))

    assert sum(len(message.body) for message in messages[:2]) == MAX_INFLATED
    with pytest.raises(DecompressionError, match="bodies of one response become larger than"):
        [message.body for message in messages]


def test_reconsume_times_can_be_set() -> None:
    (message,) = decode_messages(encode(Record("T", b"x", reconsume_times=2)), QUEUE)
    message.reconsume_times += 1
    assert message.reconsume_times == 3
    with pytest.raises(AttributeError, match="no attribute"):
        _ = message.colour  # type: ignore[attr-defined]


def test_topics_are_shown_without_namespace_and_retry_prefix() -> None:
    spaced = decode_messages(encode(Record("ns%T", b"x")), MessageQueue("ns%T", "broker-a", 0), "ns")
    retried = decode_messages(
        encode(Record("%RETRY%ns%g", b"x", properties.encode({"RETRY_TOPIC": "ns%T"}))),
        MessageQueue("%RETRY%ns%g", "broker-a", 0),
        "ns",
    )
    assert [message.topic for message in (*spaced, *retried)] == ["T", "T"]
    assert retried[0].queue == MessageQueue("%RETRY%ns%g", "broker-a", 0)


def test_malformed_response_is_an_error_without_messages() -> None:
    whole = b"".join(encode(record) for record in records()[:3])

    def broken(run: bytes) -> None:
        with pytest.raises(ProtocolError):
            decode_messages(run, QUEUE)

    for end in range(1, len(whole)):
        at, ends = 0, []
        for record in records()[:3]:
            at += record.total_size
            ends.append(at)
        if end not in ends:
            broken(whole[:end])
    broken(whole[:4] + b"\0\0\0\0" + whole[8:])
    broken(b"\0\0\0\0" + whole[4:])
    small = encode(Record("T", b"x"))
    broken(small[:84] + b"\x7f\xff\xff\xff" + small[88:])
    broken(small[:84] + b"\xff\xff\xff\xff" + small[88:])


def test_decoded_messages_are_received_messages() -> None:
    (message,) = decode_messages(encode(Record("T", b"x")), QUEUE)
    assert isinstance(message, ReceivedMessage)
    assert "T" in repr(message)
