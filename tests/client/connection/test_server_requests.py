"""Requests of brokers: dispatch by group, responses and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firearrow.client.connection.server_requests import ServerRequests
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.client.producer.request_reply import ReplyRegistry
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.frame import Command, FrameDecoder
from firearrow.wire.headers.client import CheckTransactionStateRequestHeader
from firearrow.wire.record import Record, encode
from tests.support.waiting import run, until


class RecordingChannel:
    """Records the responses."""

    address = "1:1"

    def __init__(self) -> None:
        self.responses: list[Command] = []

    def answer(self, response: bytes) -> None:
        self.responses += FrameDecoder().feed(response)


class Producer:
    def __init__(self) -> None:
        self.checks: list[tuple[str, int, bytes, str]] = []

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, message: ReceivedMessage) -> None:
        self.checks.append((address, header.tran_state_table_offset, message.body, message.queue.broker_name))


class Consumer:
    def __init__(self) -> None:
        self.rebalances = 0
        self.resets: list[tuple[str, dict[MessageQueue, int]]] = []

    def rebalance_soon(self) -> None:
        self.rebalances += 1

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.resets.append((topic, dict(offsets)))

    async def running_info(self) -> None:
        raise RuntimeError("no info")


class Setup:
    """A client with the producer group "p" and the consumer group "c"."""

    def __init__(self) -> None:
        self.producer: Any = Producer()
        self.consumer: Any = Consumer()
        self.channel: Any = RecordingChannel()
        producers: dict[str, Any] = {"p": self.producer}
        consumers: dict[str, Any] = {"c": self.consumer}
        self.requests = ServerRequests(producers, consumers, ReplyRegistry(""), "", lambda address: f"broker of {address}")

    def handle(self, code: int, fields: dict[str, str], body: bytes = b"", *, oneway: bool = False) -> None:
        command = Command(code, opaque=7, flag=2 if oneway else 0, ext=fields, body=body)
        self.requests.handle(self.channel, command)

    async def response(self) -> tuple[int, str]:
        await until(lambda: self.channel.responses)
        response = self.channel.responses[0]
        assert response.opaque == 7
        return response.code, response.remark or ""


def test_transaction_check_reaches_the_producer_group_of_the_message() -> None:
    setup = Setup()
    body = encode(Record("T", b"half", b"PGROUP\x01p\x02"))
    setup.handle(RequestCode.CHECK_TRANSACTION_STATE, {"tranStateTableOffset": "5", "commitLogOffset": "9"}, body)
    stranger = encode(Record("T", b"half", b"PGROUP\x01other\x02"))
    setup.handle(RequestCode.CHECK_TRANSACTION_STATE, {"tranStateTableOffset": "6", "commitLogOffset": "9"}, stranger)
    assert setup.producer.checks == [("1:1", 5, b"half", "broker of 1:1")]


def test_changed_members_rebalance_only_their_group() -> None:
    setup = Setup()
    setup.handle(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "other"}, oneway=True)
    assert setup.consumer.rebalances == 0
    setup.handle(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "c"}, oneway=True)
    assert (setup.consumer.rebalances, setup.channel.responses) == (1, [])


def test_reset_offsets_are_passed_to_the_consumer() -> None:
    async def story() -> None:
        setup = Setup()
        body = b'{"offsetTable":{{"brokerName":"a","queueId":3,"topic":"T"}:17}}'
        setup.handle(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "c", "timestamp": "0"}, body)
        assert await setup.response() == (ResponseCode.SUCCESS, "")
        assert setup.consumer.resets == [("T", {MessageQueue("T", "a", 3): 17})]

    run(story())


def test_failed_requests_are_answered_with_the_error() -> None:
    async def story() -> None:
        for code, fields, expected in (
            (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "c", "clientId": "x"}, "RuntimeError: no info"),
            (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "other", "clientId": "x"}, "consumer group other"),
            (RequestCode.CHECK_TRANSACTION_STATE, {}, "tranStateTableOffset"),
        ):
            setup = Setup()
            setup.handle(code, fields)
            status, remark = await setup.response()
            assert (status, expected in remark) == (ResponseCode.SYSTEM_ERROR, True), remark

    run(story())


def test_unknown_request_is_rejected_unless_it_is_oneway() -> None:
    async def story() -> None:
        setup = Setup()
        setup.handle(4711, {}, oneway=True)
        assert setup.channel.responses == []
        setup.handle(4711, {})
        assert await setup.response() == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 4711 not supported")

    run(story())
