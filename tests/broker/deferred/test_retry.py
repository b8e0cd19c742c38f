"""Retries and dead letters under a clock that the test turns: two hours of waiting take a moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from firearrow.broker.deferred import retry
from firearrow.broker.requests.responses import Refused
from firearrow.broker.send.handler import SendHandler
from firearrow.broker.send.replies import PendingReplies
from firearrow.broker.transaction.service import Transactions
from firearrow.net.connection import Connection
from firearrow.wire import properties
from firearrow.wire.bodies.client import QueueBody
from firearrow.wire.bodies.topic import SubscriptionGroupConfig
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command
from firearrow.wire.message_ids import offset_msg_id
from firearrow.wire.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from firearrow.wire.record import Record, decode_all
from tests.broker.fake_peer import FakeConnection
from tests.broker.kit import HOST, T0, Kit, decode
from tests.broker.running import send_header

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


class Story:
    """A group G that consumes the topic Orders, and fails."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.kit = Kit(root, **settings)
        self.context = self.kit.context
        self.delay = self.kit.delay
        self.kit.handlers |= retry.handlers(self.context)
        self.sends = SendHandler(self.context, Transactions(self.context, T0), PendingReplies())
        self.peer = FakeConnection(41000)
        self.kit.topic("Orders")
        self.group()

    def group(self, **more: Any) -> None:
        self.context.groups.update(SubscriptionGroupConfig(group_name="G", **more), self.kit.now)

    def send_back(self, offset: int, *, version: int = 513, **ext: Any) -> Command:
        asked: dict[str, Any] = {"offset": offset, "group": "G", "delayLevel": 0} | ext
        conn = FakeConnection(42000)
        response = self.kit.start(RequestCode.CONSUMER_SEND_MSG_BACK, conn=conn, version=version, **asked)
        self.end_round()
        return decode(response if response is not None else conn.written[-1])

    def send(self, topic: str, *, version: int = 513, **header: Any) -> None:
        names = properties.encode(header.pop("names", {})).decode()
        ext = send_header(topic, 0, names) | header
        request = Command(RequestCode.SEND_MESSAGE_V2, opaque=77, version=version, ext=ext, body=b"again")
        self.sends.send(cast(Connection, self.peer), request, self.kit.now)
        self.end_round()

    def at(self, now_ms: int) -> None:
        self.kit.now = now_ms
        while self.delay.tick(now_ms):
            self.end_round()
        self.end_round()

    def end_round(self) -> None:
        self.kit.store.write_out()
        self.kit.store.confirm(self.kit.store.max_offset)

    def messages(self, topic: str, queue_id: int = 0) -> list[Record]:
        queue = self.kit.store.queue(topic, queue_id)
        found: list[Record] = []
        while (result := self.kit.store.get_messages(queue, len(found), 32)).count:
            found += decode_all(result.body)
        return found


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    told = Story(tmp_path)
    yield told
    told.kit.close()


def named(record: Record) -> dict[str, str]:
    return properties.parse(record.properties)


def test_message_sent_back_is_redelivered_after_ten_seconds(story: Story) -> None:
    offset = story.kit.put("Orders", 2, b"x", tags="new", keys="k", uniq="U")
    assert story.send_back(offset).code == ResponseCode.SUCCESS
    story.at(T0 + 10 * SECOND - 1)
    assert story.messages("%RETRY%G") == []
    story.at(T0 + 10 * SECOND)
    (record,) = story.messages("%RETRY%G")
    assert (record.body, record.reconsume_times, record.born_timestamp, record.born_host) == (b"x", 1, T0, HOST)
    assert named(record) == {
        "TAGS": "new", "KEYS": "k", "UNIQ_KEY": "U", "RETRY_TOPIC": "Orders", "WAIT": "false", "DELAY": "3",
        "ORIGIN_MESSAGE_ID": offset_msg_id(HOST, offset), "REAL_TOPIC": "%RETRY%G", "REAL_QID": "0",
    }  # fmt: skip
    topic = story.context.topics.find("%RETRY%G")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


def test_sixteen_retries_over_nearly_five_hours_and_then_the_dead_letters(story: Story) -> None:
    offset = story.kit.put("Orders", 0, b"x", uniq="U")
    waits = [10 * SECOND, 30 * SECOND] + [minutes * MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)]
    waits += [HOUR, 2 * HOUR]
    first_id = offset_msg_id(HOST, offset)
    for times, wait in enumerate(waits):
        assert story.send_back(offset).code == ResponseCode.SUCCESS
        story.at(story.kit.now + wait - 1)
        assert len(story.messages("%RETRY%G")) == times
        story.at(story.kit.now + 1)
        record = story.messages("%RETRY%G")[-1]
        assert (record.reconsume_times, named(record)["ORIGIN_MESSAGE_ID"]) == (times + 1, first_id)
        offset = record.physical_offset
    assert story.messages("%DLQ%G") == []

    assert story.send_back(offset).code == ResponseCode.SUCCESS
    (dead,) = story.messages("%DLQ%G")
    assert (dead.body, dead.reconsume_times) == (b"x", 17)
    letter = named(dead)
    assert (letter["RETRY_TOPIC"], letter["ORIGIN_MESSAGE_ID"], letter["DELAY"]) == ("Orders", first_id, "0")
    assert (letter["DLQ_ORIGIN_TOPIC"], letter["DLQ_ORIGIN_MESSAGE_ID"]) == ("Orders", "U")
    assert len(story.messages("%RETRY%G")) == 16
    topic = story.context.topics.find("%DLQ%G")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


def test_beyond_sixteen_every_wait_is_two_hours(story: Story) -> None:
    story.group(retry_max_times=100)
    offset = story.kit.put("Orders", 0, b"x")
    for _ in range(20):
        story.send_back(offset)
        story.at(story.kit.now + 2 * HOUR)
        offset = story.messages("%RETRY%G")[-1].physical_offset
    begun = story.kit.now
    story.send_back(offset)
    story.at(begun + 2 * HOUR - 1)
    assert len(story.messages("%RETRY%G")) == 20
    story.at(begun + 2 * HOUR)
    assert len(story.messages("%RETRY%G")) == 21


@pytest.mark.parametrize(
    ("group", "ext", "version", "dead"),
    [
        ({"retry_max_times": 0}, {}, 513, True),
        ({"retry_max_times": 1}, {}, 513, False),
        ({}, {"maxReconsumeTimes": 0}, 513, True),
        ({"retry_max_times": 0}, {"maxReconsumeTimes": 1}, 513, False),
        ({}, {"maxReconsumeTimes": 0}, 121, True),
        ({}, {"maxReconsumeTimes": 0}, 120, False),  # such clients did not mean it
        ({"retry_max_times": 0}, {"maxReconsumeTimes": 1}, 120, True),
        ({}, {"maxReconsumeTimes": -1}, 513, False),
        ({}, {"delayLevel": -1}, 513, True),
    ],
)
def test_retry_limit_comes_from_group_or_client(
    story: Story, group: dict[str, int], ext: dict[str, int], version: int, dead: bool
) -> None:
    story.group(**group)
    offset = story.kit.put("Orders", 0, b"x")
    assert story.send_back(offset, version=version, **ext).code == ResponseCode.SUCCESS
    assert len(story.messages("%DLQ%G")) == dead
    assert len(story.messages(SCHEDULE_TOPIC, 2)) == (not dead)


@pytest.mark.parametrize(("asked", "queue_id"), [(1, 0), (5, 4), (18, 17), (99, 17)])
def test_the_consumer_may_choose_the_level(story: Story, asked: int, queue_id: int) -> None:
    offset = story.kit.put("Orders", 0, b"x")
    story.send_back(offset, delayLevel=asked)
    assert len(story.messages(SCHEDULE_TOPIC, queue_id)) == 1


def test_retry_queue_is_within_the_topic(story: Story) -> None:
    story.context.topics.ensure("%RETRY%G", 2, 6, T0)
    story.group(retry_queue_nums=16)
    offset = story.kit.put("Orders", 0, b"x")
    for _ in range(40):
        story.send_back(offset)
    story.at(T0 + 10 * SECOND)
    assert len(story.messages("%RETRY%G", 0)) + len(story.messages("%RETRY%G", 1)) == 40
    assert story.messages("%RETRY%G", 1)


def test_a_group_without_retry_queues_has_no_retries(story: Story) -> None:
    story.group(retry_queue_nums=0)
    offset = story.kit.put("Orders", 0, b"x")
    end = story.kit.store.max_offset
    assert story.send_back(offset).code == ResponseCode.SUCCESS
    assert story.send_back(offset, delayLevel=-1).code == ResponseCode.SUCCESS
    assert story.kit.store.max_offset == end


def test_a_message_that_came_by_a_timer_is_not_held_up_on_its_way_to_the_dead_letters(story: Story) -> None:
    raw = {"TIMER_DELAY_SEC": "3600", "TIMER_OUT_MS": str(T0), "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    queue = story.kit.store.queue("Orders", 0)
    encoded = properties.encode(raw)
    offset = story.kit.store.append(
        queue, b"x", encoded, 0, flag=0, sys_flag=0, born_ms=T0, born_host=HOST, store_ms=T0, reconsume_times=3
    )
    story.end_round()
    story.send_back(offset, delayLevel=-1)
    (dead,) = story.messages("%DLQ%G")
    assert "TIMER_DELAY_SEC" not in named(dead)
    assert dead.reconsume_times == 4


@pytest.mark.parametrize(
    ("ext", "code", "says"),
    [
        ({"group": "no such/name"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such/name"),
        ({"group": ""}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "group"),
        ({"offset": "1000000"}, ResponseCode.SYSTEM_ERROR, "look message by offset failed, 1000000"),
        ({"offset": "-1"}, ResponseCode.SYSTEM_ERROR, "look message by offset failed, -1"),
        ({"offset": "9223372036854775807"}, ResponseCode.SYSTEM_ERROR, "look message"),
        ({"offset": "7"}, ResponseCode.SYSTEM_ERROR, "look message by offset failed, 7"),  # not where a record begins
        ({"offset": "first"}, ResponseCode.INVALID_PARAMETER, "first"),
        ({"offset": ""}, ResponseCode.INVALID_PARAMETER, "offset"),
        ({"delayLevel": "soon"}, ResponseCode.INVALID_PARAMETER, "soon"),
        ({"delayLevel": ""}, ResponseCode.INVALID_PARAMETER, "delayLevel"),
        ({"maxReconsumeTimes": "4294967296"}, ResponseCode.INVALID_PARAMETER, "maxReconsumeTimes"),
    ],
)
def test_a_bad_request_stores_nothing(story: Story, ext: dict[str, Any], code: int, says: str) -> None:
    offset = story.kit.put("Orders", 0, b"x")
    end = story.kit.store.max_offset
    answer = story.send_back(**({"offset": offset} | ext))
    assert (answer.code, says in (answer.remark or "")) == (code, True), answer.remark
    assert story.kit.store.max_offset == end


def test_an_unknown_group_that_may_not_be_created_is_refused(tmp_path: Path) -> None:
    story = Story(tmp_path, auto_create_subscription_group=False)
    offset = story.kit.put("Orders", 0, b"x")
    answer = story.send_back(offset, group="Other")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert story.context.topics.find("%RETRY%Other") is None
    story.kit.close()


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC])
def test_message_that_is_not_consumable_cannot_be_sent_back(story: Story, topic: str) -> None:
    offset = story.kit.put(topic, 0, b"half")
    assert story.send_back(offset).code == ResponseCode.SYSTEM_ERROR


def test_unwritable_broker_or_retry_topic_rejects_with_the_reason(story: Story) -> None:
    offset = story.kit.put("Orders", 0, b"x")
    story.context.topics.ensure("%RETRY%G", 1, 4, T0)
    answer = story.send_back(offset)
    assert (answer.code, "updateTopicPerm" in (answer.remark or "")) == (ResponseCode.NO_PERMISSION, True)
    story.kit.settings.broker_permission = 4
    assert story.send_back(offset, delayLevel=-1).code == ResponseCode.NO_PERMISSION
    assert story.messages("%DLQ%G") == []


def test_properties_that_leave_no_room_are_refused_with_the_reason(story: Story) -> None:
    offset = story.kit.put("Orders", 0, b"x", keys="k" * 32_700)
    answer = story.send_back(offset)
    assert (answer.code, "32767" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


def test_a_one_way_send_back_is_stored_and_not_answered(story: Story) -> None:
    offset = story.kit.put("Orders", 0, b"x")
    conn = FakeConnection(42000)
    ext: dict[str, Any] = {"offset": offset, "group": "G", "delayLevel": 0}
    assert story.kit.start(RequestCode.CONSUMER_SEND_MSG_BACK, conn=conn, flag=2, **ext) is None
    story.end_round()
    assert conn.written == []
    assert len(story.messages(SCHEDULE_TOPIC, 2)) == 1


# Sends to the retry topic.

ORDERLY = {"RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": "FIRST", "UNIQ_KEY": "U", "DELAY": "5"}


def lock(story: Story) -> None:
    story.context.locks.lock("G", "somebody", [QueueBody(topic="Orders", broker_name="broker-a", queue_id=0)], story.kit.now)


@pytest.mark.parametrize(
    ("times", "asked", "version", "dead"),
    [(16, None, 513, False), (17, None, 513, True), (2, "2", 513, False), (3, "2", 513, True), (3, "2", 120, False)],
)
def test_a_send_to_the_retry_topic_beyond_the_limit_is_a_dead_letter(
    story: Story, times: int, asked: str | None, version: int, dead: bool
) -> None:
    more = {} if asked is None else {"l": asked}
    story.send("%RETRY%G", version=version, j=str(times), names=ORDERLY, **more)
    assert len(story.messages("%DLQ%G")) == dead
    assert len(story.messages(SCHEDULE_TOPIC, 4)) == (not dead)


def test_an_orderly_groups_last_resort_is_the_dead_letter_queue_at_once(story: Story) -> None:
    lock(story)
    story.send("%RETRY%G", j="3", l="3", names=ORDERLY)
    (dead,) = story.messages("%DLQ%G")
    letter = named(dead)
    assert (dead.body, dead.reconsume_times, dead.queue_id) == (b"again", 3, 0)
    assert (letter["DELAY"], letter["RETRY_TOPIC"], letter["ORIGIN_MESSAGE_ID"]) == ("0", "Orders", "FIRST")
    assert (letter["DLQ_ORIGIN_TOPIC"], letter["DLQ_ORIGIN_MESSAGE_ID"]) == ("Orders", "U")


def test_group_with_expired_locks_is_not_orderly(story: Story) -> None:
    lock(story)
    story.kit.now += 61 * SECOND
    story.send("%RETRY%G", j="3", l="3", names=ORDERLY)
    assert story.messages("%DLQ%G") == []
    assert len(story.messages(SCHEDULE_TOPIC, 4)) == 1


def test_a_retry_of_a_committed_message_is_no_half_message(story: Story) -> None:
    story.send("%RETRY%G", j="1", f="4", names=ORDERLY | {"TRAN_MSG": "true"})
    (waiting,) = story.messages(SCHEDULE_TOPIC, 4)
    assert "TRAN_MSG" not in named(waiting)
    assert waiting.sys_flag & 0xC == 0


def test_a_retry_of_a_group_that_was_deleted_is_refused(tmp_path: Path) -> None:
    story = Story(tmp_path, auto_create_subscription_group=False)
    story.send("%RETRY%G", j="1", names=ORDERLY)
    story.context.groups.delete("G", T0)
    with pytest.raises(Refused) as refused:
        story.send("%RETRY%G", j="1", names=ORDERLY)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    story.kit.close()


def test_a_batch_is_refused_for_the_retry_topic_even_of_an_orderly_group(story: Story) -> None:
    lock(story)
    with pytest.raises(Refused) as refused:
        story.send("%RETRY%G", j="99", m="true", names=ORDERLY)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert story.messages("%DLQ%G") == []
