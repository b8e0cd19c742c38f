"""Request and reply: who is handed what, who is answered when, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker import request_reply
from firearrow.net.channel import Channel
from firearrow.wire import properties
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, encode_response
from firearrow.wire.headers.client import ReplyMessageRequestHeader
from firearrow.wire.message_ids import offset_msg_id
from firearrow.wire.record import Record, decode_all
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import HOST, T0, Kit, decode
from tests.broker.running import broker, client, records, send_header
from tests.support.waiting import run

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKED = {"MSG_TYPE": "reply", "REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "c-1", "TTL": "3000", "UNIQ_KEY": "R"}


class Story:
    """`asker` waits for an answer; `replier` sends it."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.kit = Kit(root, **settings)
        self.kit.handlers |= request_reply.handlers(self.kit.context)
        self.asker, self.replier = FakeConnection(41000), FakeConnection(42000)
        self.kit.ask(34, {"clientID": "asker", "producerDataSet": [{"groupName": "P"}]}, conn=self.asker)

    def reply(self, names: dict[str, str] = ASKED, *, body: bytes = b"yes", flag: int = 0, **header: str) -> Command | None:
        """The answer to the replier, if there is one yet."""
        ext = send_header(REPLY_TOPIC, 0, properties.encode(names).decode()) | header
        response = self.kit.start_raw(RequestCode.SEND_REPLY_MESSAGE_V2, ext, body, conn=self.replier, flag=flag)
        self.kit.store.write_out()
        self.kit.store.confirm(self.kit.store.max_offset)
        return decode(response) if response is not None else self.answer()

    def answer(self) -> Command | None:
        return decode(self.replier.written[-1]) if self.replier.written else None

    def asker_says(self, code: int, remark: str | None = None) -> None:
        *_, done = self.kit.called[-1]
        done(Command(code, flag=1, remark=remark), "")

    def kept(self) -> list[Record]:
        result = self.kit.store.get_messages(self.kit.store.find_queue(REPLY_TOPIC, 0), 0, 32)
        return decode_all(result.body) if result.count else []


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    told = Story(tmp_path)
    yield told
    told.kit.close()


def test_replier_is_answered_after_the_requester_has_the_reply(story: Story) -> None:
    assert story.reply() is None
    ((conn, code, ext, body, _),) = story.kit.called
    assert (conn, code, body) == (story.asker, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"yes")
    pushed = ReplyMessageRequestHeader.decode(ext)
    assert (pushed.topic, pushed.queue_id, pushed.flag, pushed.store_timestamp) == (REPLY_TOPIC, 0, 7, T0)
    assert (pushed.born_host, pushed.store_host) == ("10.0.0.9:42000", "127.0.0.1:10911")
    stamps = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert properties.parse(pushed.properties) == ASKED | stamps | {"PUSH_REPLY_TIME": str(T0)}

    story.asker_says(ResponseCode.SUCCESS)
    answer = story.answer()
    assert answer is not None
    (record,) = story.kept()
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0", "0")
    assert answer.ext["msgId"] == offset_msg_id(HOST, record.physical_offset)
    assert (record.body, properties.parse(record.properties)) == (b"yes", ASKED | stamps)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (ASKED | {"REPLY_TO_CLIENT": "gone"}, "channel of <gone> not found"),
        ({"CORRELATION_ID": "c-1"}, "properties[REPLY_TO_CLIENT] is null"),
    ],
)
def test_reply_without_requester_is_stored_and_answered_with_an_error(story: Story, names: dict[str, str], says: str) -> None:
    answer = story.reply(names)
    assert answer is not None
    assert (answer.code, says in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
    assert answer.ext["queueOffset"] == "0"
    assert story.kit.called == []
    assert [record.body for record in story.kept()] == [b"yes"]


def test_requester_that_rejects_or_ignores_the_reply_is_an_error(story: Story) -> None:
    story.reply()
    story.asker_says(ResponseCode.SYSTEM_ERROR, "nobody waits for c-1")
    answer = story.answer()
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "nobody waits for c-1" in (answer.remark or "")

    story.reply()
    story.kit.called[-1][-1](None, "no answer within 10000 ms")
    assert "10000 ms" in (decode(story.replier.written[-1]).remark or "")


def test_another_client_does_not_get_the_reply_by_using_the_requesters_client_id(story: Story) -> None:
    thief = FakeConnection(43000)
    story.kit.now += 1_000
    story.kit.ask(34, {"clientID": "asker", "producerDataSet": [{"groupName": "P"}]}, conn=thief)
    assert story.reply() is None
    assert [conn for conn, *_ in story.kit.called] == [story.asker]


def test_replies_are_not_stored_if_disabled(tmp_path: Path) -> None:
    story = Story(tmp_path, store_reply_message_enable=False)
    story.reply()
    story.asker_says(ResponseCode.SUCCESS)
    answer = story.answer()
    assert answer is not None
    assert (answer.code, answer.ext["msgId"], answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0", "0")
    assert story.kept() == []
    story.kit.close()


@pytest.mark.parametrize(
    ("header", "body", "code"),
    [
        ({"b": "a b"}, b"x", ResponseCode.INVALID_PARAMETER),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, b"x", ResponseCode.NO_PERMISSION),
        ({"e": "1"}, b"x", ResponseCode.INVALID_PARAMETER),
        ({"e": "one"}, b"x", ResponseCode.INVALID_PARAMETER),
        ({}, b"", ResponseCode.MESSAGE_ILLEGAL),
        ({}, b"x" * (4 * 1024 * 1024 + 1), ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "v\x01" + "v" * 32_767}, b"x", ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_invalid_reply_is_rejected_and_not_pushed(story: Story, header: dict[str, Any], body: bytes, code: int) -> None:
    answer = story.reply(body=body, **header)
    assert answer is not None
    assert (answer.code, story.kit.called, story.kept()) == (code, [], [])


def test_one_way_reply_is_pushed_without_response(story: Story) -> None:
    story.reply(flag=2)
    story.asker_says(ResponseCode.SUCCESS)
    assert (len(story.kit.called), story.replier.written) == (1, [])


def test_request_and_reply_over_sockets(tmp_path: Path) -> None:
    handed: list[Command] = []

    async def story() -> None:
        async with broker(tmp_path, flush="SYNC_FLUSH") as running, client(running) as replier:
            channel = await Channel.connect(running.advertised, on_request=take)
            beat = b'{"clientID":"asker","producerDataSet":[{"groupName":"P"}]}'
            assert (await channel.request(RequestCode.HEART_BEAT, {}, beat, timeout_ms=60_000)).code == ResponseCode.SUCCESS
            header = send_header(REPLY_TOPIC, 0, properties.encode(ASKED).decode())
            answer = await replier.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"yes")
            assert (answer.code, len(handed)) == (ResponseCode.SUCCESS, 1)
            assert handed[0].body == b"yes"
            assert [record.body for record in records(await replier.pull(REPLY_TOPIC, 0))] == [b"yes"]
            await channel.close()
            late = await replier.call(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"late")
            assert (late.code, late.ext["queueOffset"]) == (ResponseCode.SYSTEM_ERROR, "1")

    def take(channel: Channel, request: Command) -> None:
        handed.append(request)
        channel.answer(encode_response(request, ResponseCode.SUCCESS))

    run(story())
