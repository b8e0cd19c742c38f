"""Traces of producers and consumers with `trace=True`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from firearrow.client.consumer.pull_consumer import PullConsumer
from firearrow.client.consumer.push_consumer import PushConsumer
from firearrow.client.hooks import ConsumeContext, EndTransactionContext, MessageKind, SendContext
from firearrow.client.message import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus, received
from firearrow.client.options import client_options
from firearrow.client.producer.producer import Producer
from firearrow.client.trace import encoding
from firearrow.client.trace.hook import MAX_BODY_BYTES, MAX_WAITING, Trace, pack
from firearrow.wire import properties
from firearrow.wire.record import Record
from tests.client.cluster import Servers, servers
from tests.support.waiting import run

QUEUE = MessageQueue("T", "broker-a", 0)


def trace(side: str = "PRODUCE") -> Trace:
    async def make() -> Trace:
        return Trace(client_options("127.0.0.1:1", namespace="NS"), "NS%g", side)  # type: ignore[arg-type]

    return run(make())


def told(one: Trace) -> list[list[str]]:
    return [encoding.contexts(context.text.encode())[0] for context in one.waiting]


def sent(messages: list[Message], result: SendResult | None, kind: MessageKind = MessageKind.NORMAL) -> SendContext:
    return SendContext("NS%g", messages, QUEUE, "127.0.0.1:10911", "ID", kind, 1700000000000, 5, 2.6, result)


def stored(msg_id: str = "ID", offset_msg_id: str = "OFF", *, region: str | None = "R", trace_on: bool = True) -> SendResult:
    return SendResult(SendStatus.OK, msg_id, offset_msg_id, QUEUE, 7, region_id=region, trace_on=trace_on)


def test_a_send() -> None:
    one = trace()
    one.after_send(sent([Message("T", b"hello", "new", ["k1", "k2"])], stored(), MessageKind.ORDER))

    assert told(one) == [
        ["Pub", "1700000000000", "R", "g", "T", "ID", "new", "k1 k2", "127.0.0.1:10911", "5", "3", "4", "OFF", "true"]
    ]


def test_each_message_of_a_batch() -> None:
    one = trace()
    one.after_send(sent([Message("T", b"a"), Message("T", b"bb", keys="k")], stored("ID1,ID2", "OFF1,OFF2")))

    assert [(context[5], context[7], context[9], context[12]) for context in told(one)] == [
        ("ID1", "null", "1", "OFF1"),
        ("ID2", "k", "2", "OFF2"),
    ]


@pytest.mark.parametrize("result", [None, stored(trace_on=False), stored(region=None)])
def test_failed_and_untraced_sends_are_not_recorded(result: SendResult | None) -> None:
    one = trace()
    one.after_send(sent([Message("T", b"x")], result))
    assert told(one) == []


def message(**names: str) -> ReceivedMessage:
    return received(Record("T", b"x", properties.encode(names), reconsume_times=2), "broker-a")


def test_a_consumption_is_told_before_and_after_with_one_request_id() -> None:
    one = trace("CONSUME")
    messages = [message(UNIQ_KEY="ID", KEYS="k", MSG_REGION="R"), message(UNIQ_KEY="NOT", TRACE_ON="false")]
    context = ConsumeContext("NS%g", QUEUE, messages, 1700000000000)
    one.before_consume(context)
    context.elapsed_ms, context.error = 10.0, KeyError("x")
    one.after_consume(context)

    before, after = told(one)
    request_id = before[4]
    assert len(request_id) == 32
    assert before == ["SubBefore", "1700000000000", "R", "g", request_id, "ID", "2", "k"]
    assert after[:7] == ["SubAfter", request_id, "ID", "5", "false", "k", "2"]
    assert after[8] == "g"


def test_a_decision_about_a_transaction() -> None:
    one = trace()
    context = EndTransactionContext(
        "NS%g", "NS%T", Message("T", b"x", "t", "k"), "b:1", "ID", "TX", "ROLLBACK_MESSAGE", from_check=False
    )
    one.end_transaction(context)

    (fields,) = told(one)
    assert fields[0] == "EndTransaction"
    assert fields[2:] == ["DefaultRegion", "g", "T", "ID", "t", "k", "b:1", "2", "TX", "ROLLBACK_MESSAGE", "false"]


def test_many_contexts_are_few_messages_within_the_limits() -> None:
    one = trace()
    for number in range(MAX_WAITING + 5):
        one.after_send(sent([Message("T", b"x", keys=[f"key-{number}"])], stored(f"ID{number:030}")))
    assert len(one.waiting) == MAX_WAITING, "what is too much is dropped"
    messages = list(pack("TRACE", list(one.waiting)))

    assert 1 < len(messages) < 20
    assert all(len(message.body) <= MAX_BODY_BYTES and len(" ".join(message.keys)) <= 16_000 for message in messages)
    ids = [context[5] for message in messages for context in encoding.contexts(message.body)]
    assert ids == [f"ID{number:030}" for number in range(MAX_WAITING)]
    assert "key-0" in messages[0].keys


async def traces(cluster: Servers, count: int) -> list[list[str]]:
    """The contexts in the trace topic."""
    found: list[list[str]] = []
    async with PullConsumer(
        cluster.name_server, group="reader", topics=["RMQ_SYS_TRACE_TOPIC"], start_from="earliest"
    ) as consumer:
        while len(found) < count:
            for one in await consumer.poll(10):
                found += encoding.contexts(one.body)
    return found


def test_traces_arrive_in_the_topic_when_clients_close(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            async with Producer(cluster.name_server, group="p", trace=True) as producer:
                result = await producer.send(Message("T", b"hello", "new", "k1"))
            async with PullConsumer(cluster.name_server, group="c", topics=["T"], start_from="earliest", trace=True) as consumer:
                assert [one.msg_id for one in await consumer.poll(10)] == [result.msg_id]
            called = asyncio.Event()

            async def handle(message: ReceivedMessage) -> None:
                called.set()
                raise KeyError("not now")

            async with PushConsumer(
                cluster.name_server, group="d", subscribe={"T": "*"}, listener=handle, start_from="earliest", trace=True
            ):
                await called.wait()
            pub, after, failed, before, before_that = sorted(
                await traces(cluster, 5), key=lambda one: (one[0], one[8] if one[0] == "SubAfter" else one[3])
            )
            assert (before_that[0], before_that[3], before_that[5]) == ("SubBefore", "d", result.msg_id)
            assert (failed[0], failed[2], failed[4], failed[6], failed[8]) == ("SubAfter", result.msg_id, "false", "2", "d")
            assert (pub[0], pub[3], pub[4], pub[5], pub[13]) == ("Pub", "p", "T", result.msg_id, "true")
            assert (before[0], before[3], before[5]) == ("SubBefore", "c", result.msg_id)
            assert (after[0], after[2], after[4]) == ("SubAfter", result.msg_id, "true")

    run(story())


def test_missing_trace_topic_does_not_affect_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with servers(tmp_path, auto_create_topic_enable=False) as cluster:
            await cluster.create("T")
            async with Producer(cluster.name_server, group="p", trace=True) as producer:
                for _ in range(2):
                    assert (await producer.send(Message("T", b"hello"))).status is SendStatus.OK
                    await asyncio.sleep(0)

    run(story())
    assert "sending traces of group p to RMQ_SYS_TRACE_TOPIC failed" in caplog.text
