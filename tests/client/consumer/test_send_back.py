"""Sending back messages that were not consumed."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.client.connection.routes import QueueCounts, TopicRoute
from firearrow.client.consumer.listener import DEAD_LETTER
from firearrow.client.consumer.send_back import SendBack
from firearrow.client.errors import ConnectionLost
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command
from firearrow.wire.header_schema import Request, request_code, request_fields
from firearrow.wire.properties import encode, parse
from firearrow.wire.record import Record
from tests.support.waiting import run


class FakeInstance:
    """Two brokers with the retry topic; records requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, int, dict[str, str]]] = []
        self.rejects: set[int] = set()

    def broker_address(self, name: str, broker_id: int = 0, *, only_this: bool = False) -> tuple[str, bool]:
        return {"a": "1:1", "b": "2:2"}[name], False

    async def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        return TopicRoute(topic, {"a": {0: "1:1"}, "b": {0: "2:2"}}, (QueueCounts("a", 1, 1, 6), QueueCounts("b", 1, 1, 6)))

    async def call(self, address: str, request: Request, body: bytes = b"", **_: Any) -> Command:
        code = request_code(request)
        self.requests.append((address, code, dict(request_fields(request))))
        if code in self.rejects:
            raise ConnectionLost(f"{address} is down")
        return Command(0)

    check = call


def message(reconsume_times: int = 0) -> ReceivedMessage:
    properties = encode({"UNIQ_KEY": "ID", "own": "v", "TIMER_DELAY_SEC": "9"})
    record = Record("T", b"body", properties, physical_offset=77, reconsume_times=reconsume_times)
    return ReceivedMessage(record, MessageQueue("T", "a", 0), "T")


def test_broker_of_the_message_is_asked_first() -> None:
    instance: Any = FakeInstance()
    assert run(SendBack(instance, "g", 16).to_broker(message(), 3))
    ((address, code, fields),) = instance.requests
    assert (address, code) == ("1:1", RequestCode.CONSUMER_SEND_MSG_BACK)
    assert (fields["offset"], fields["delayLevel"], fields["maxReconsumeTimes"]) == ("77", "3", "16")


def test_retry_topic_of_another_broker_is_the_fallback() -> None:
    instance: Any = FakeInstance()
    instance.rejects = {RequestCode.CONSUMER_SEND_MSG_BACK}
    assert run(SendBack(instance, "g", 16).to_broker(message(2)))
    address, code, fields = instance.requests[-1]
    assert (address, code, fields["b"], fields["j"]) == ("2:2", RequestCode.SEND_MESSAGE_V2, "%RETRY%g", "3")
    properties = parse(fields["i"])
    assert (properties["own"], properties["RETRY_TOPIC"], properties["DELAY"]) == ("v", "T", "5")
    assert "TIMER_DELAY_SEC" not in properties


def test_message_accepted_by_no_broker_is_reported() -> None:
    instance: Any = FakeInstance()
    instance.rejects = {RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2}
    assert not run(SendBack(instance, "g", 16).to_broker(message()))


@pytest.mark.parametrize(("reconsume_times", "delay_level", "is_dead"), [(15, 0, False), (16, 0, True), (0, DEAD_LETTER, True)])
def test_dead_letter_is_logged(reconsume_times: int, delay_level: int, is_dead: bool, caplog: pytest.LogCaptureFixture) -> None:
    instance: Any = FakeInstance()
    assert run(SendBack(instance, "g", 16).to_broker(message(reconsume_times), delay_level))
    assert ("is a dead letter in %DLQ%g" in caplog.text) is is_dead
