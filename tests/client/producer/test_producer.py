"""The producer against a broker and a name server in this process."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from firearrow.aio import Producer
from firearrow.broker.server import Broker
from firearrow.client.compression import MAX_INFLATED
from firearrow.client.errors import BrokerError, ClosedError, InvalidMessageError, NoRouteError
from firearrow.client.hooks import MessageKind, SendContext
from firearrow.client.message import Message, MessageQueue, ReceivedMessage, SendStatus, received
from firearrow.client.producer.batches import PartialBatchError
from firearrow.net.channel import Channel
from firearrow.wire.codes import RequestCode
from firearrow.wire.java_hash import hash_code
from firearrow.wire.record import decode_all
from tests.client.cluster import instance_of, servers
from tests.support.waiting import run


async def stored(broker: Broker, topic: str, queue_id: int = 0) -> list[ReceivedMessage]:
    channel = await Channel.connect(broker.advertised)
    messages: list[ReceivedMessage] = []
    while True:
        ext = {
            "consumerGroup": "LOOK", "topic": topic, "queueId": queue_id, "queueOffset": len(messages), "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG",
        }  # fmt: skip
        answer = await channel.request(RequestCode.PULL_MESSAGE, ext)
        if answer.code != 0:
            await channel.close()
            return messages
        messages += [received(record, broker.settings.broker_name) for record in decode_all(answer.body)]


async def all_stored(broker: Broker, topic: str, queues: int = 4) -> list[ReceivedMessage]:
    return [message for queue_id in range(queues) for message in await stored(broker, topic, queue_id)]


def test_everything_about_a_message_arrives(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server, group="orders") as producer:
            before_ms = time.time_ns() // 1_000_000
            sent = Message("Orders", b"hello", tags="new", keys=["A1", "B2"], properties={"n": "1", "näme": "wört"}, flag=7)
            result = await producer.send(sent)
            assert result.status is SendStatus.OK
            [message] = await stored(cluster.brokers[0], "Orders", result.queue_id)
            assert (message.topic, message.body, message.tags, message.keys) == ("Orders", b"hello", "new", ("A1", "B2"))
            assert (message.properties["n"], message.properties["näme"], message.get("n"), message.flag) == ("1", "wört", "1", 7)
            assert (message.msg_id, message.offset_msg_id) == (result.msg_id, result.offset_msg_id)
            assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)
            assert before_ms <= message.born_ms <= message.store_ms
            assert message.reconsume_times == 0
            assert message.store_host == cluster.brokers[0].advertised

    run(story())


def test_messages_are_spread_over_the_queues(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, brokers=2) as cluster, Producer(cluster.name_server) as producer:
            await cluster.create("Orders", queues=2)
            queues = [(await producer.send(Message("Orders", b"x"))).queue for _ in range(8)]
            assert sorted(set(queues)) == await producer.queues("Orders")
            assert all(queues.count(queue) == 2 for queue in set(queues))

    run(story())


def test_thousands_at_once_arrive_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server) as producer:
            await cluster.create("Orders", queues=1)
            futures = [producer.send_nowait(Message("Orders", b"%d" % n)) for n in range(3000)]
            results = await asyncio.gather(*futures)
            assert [result.queue_offset for result in results] == list(range(3000))
            assert len({result.msg_id for result in results}) == 3000
            assert [message.body for message in await stored(cluster.brokers[0], "Orders")] == [b"%d" % n for n in range(3000)]

    run(story())


def test_the_queue_can_be_chosen(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server) as producer:
            await cluster.create("Orders", queues=8)
            third = MessageQueue("Orders", "broker-a", 3)
            assert (await producer.send(Message("Orders", b"x"), queue=third)).queue == third
            chosen = await producer.send(
                Message("Orders", b"x", keys="5"), selector=lambda queues, message: queues[int(str(message.keys))]
            )
            assert chosen.queue_id == 5
            for key in ("order-7", "Bestellung-ü", "polygenelubricants"):  # the hash of the last is the smallest integer
                result = await producer.send(Message("Orders", b"x"), sharding_key=key)
                assert result.queue_id == abs(hash_code(key)) % 8
                last = (await stored(cluster.brokers[0], "Orders", result.queue_id))[-1]
                assert last.get("__SHARDINGKEY") == key
            with pytest.raises(InvalidMessageError, match="pass one of them"):
                await producer.send(Message("Orders", b"x"), queue=third, sharding_key="k")
            with pytest.raises(InvalidMessageError, match="is not a writable queue of the topic"):
                await producer.send(Message("Orders", b"x"), queue=MessageQueue("Orders", "broker-a", 8))

    run(story())


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_large_bodies_travel_compressed(tmp_path: Path, compression: str) -> None:
    if compression != "zlib":
        pytest.importorskip({"lz4": "lz4.frame", "zstd": "zstandard"}[compression])

    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server, compression=compression) as producer:
            await cluster.create("Orders")
            large, small = b"0123456789" * 1000, b"y" * 4095
            await producer.send(Message("Orders", large))
            await producer.send(Message("Orders", small))
            noise = bytes(hash((n, "x")) & 255 for n in range(5000))
            await producer.send(Message("Orders", noise))
            first, second, third = await stored(cluster.brokers[0], "Orders")
            assert (first.body, second.body, third.body) == (large, small, noise)
            assert first.sys_flag == {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}[compression]
            assert first.store_size < 1000
            assert second.sys_flag == 0

    run(story())
    assert MAX_INFLATED >= 4 * 1024 * 1024


def test_a_batch_is_one_request_and_gives_a_result_for_each(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server) as producer:
            results = await producer.send_batch([Message("Orders", b"%d" % n, tags="t", keys=str(n)) for n in range(10)])
            assert [result.queue_offset for result in results] == list(range(10))
            found = await stored(cluster.brokers[0], "Orders", results[0].queue_id)
            assert [(m.msg_id, m.offset_msg_id) for m in found] == [(r.msg_id, r.offset_msg_id) for r in results]
            assert [(m.body, m.tags, m.keys) for m in found] == [(b"%d" % n, "t", (str(n),)) for n in range(10)]

    run(story())


def test_a_batch_that_is_too_large_for_one_request_is_split(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server, max_message_size=10_000) as producer:
            await cluster.create("Orders")
            messages = [Message("Orders", bytes([65 + n]) * 3000) for n in range(10)]
            results = await producer.send_batch(messages)
            assert len({r.msg_id for r in results}) == 10
            assert [m.body for m in await stored(cluster.brokers[0], "Orders")] == [m.body for m in messages]
            with pytest.raises(InvalidMessageError, match="use one batch per topic"):
                await producer.send_batch([Message("Orders", b"x"), Message("Other", b"x")])
            with pytest.raises(InvalidMessageError, match="batch is empty"):
                await producer.send_batch([])

    run(story())


def test_partial_batch_error_has_the_stored_results(tmp_path: Path) -> None:
    async def story() -> None:
        class Refuse:
            sends = 0

            def before_send(self, context: SendContext) -> None:
                self.sends += 1
                if self.sends == 2:
                    raise RuntimeError("enough")

            def after_send(self, context: SendContext) -> None:
                pass

        options: Any = {"max_message_size": 7_000, "hooks": [Refuse()]}
        async with servers(tmp_path) as cluster, Producer(cluster.name_server, **options) as producer:
            with pytest.raises(PartialBatchError, match="2 of 4 messages were stored before an error: enough") as caught:
                await producer.send_batch([Message("Orders", b"x" * 3000) for _ in range(4)])
            assert len(caught.value.results) == 2

    run(story())


def test_delayed_messages_are_stored_in_holding_topics(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server) as producer:
            await producer.send(Message("Orders", b"level"), delay_level=3)
            [waiting] = await stored(cluster.brokers[0], "SCHEDULE_TOPIC_XXXX", 2)
            assert (waiting.body, waiting.system_properties["REAL_TOPIC"]) == (b"level", "Orders")
            at = datetime.now() + timedelta(minutes=5)
            for n, when in enumerate(({"delay": 10}, {"delay": 2.5}, {"delay": timedelta(hours=1)}, {"deliver_at": at})):
                result = await producer.send(Message("Orders", b"%d" % n), **when)  # type: ignore[arg-type]  # each is one of them
                assert result.recall_handle
            timers = await stored(cluster.brokers[0], "rmq_sys_wheel_timer")
            assert [m.get("TIMER_DELAY_SEC") or m.get("TIMER_DELAY_MS") for m in timers[:3]] == ["10", "2500", "3600"]
            assert timers[3].system_properties["TIMER_DELIVER_MS"] == str(round(at.timestamp() * 1000))
            with pytest.raises(InvalidMessageError, match="delay and delay_level exclude each other"):
                await producer.send(Message("Orders", b"x"), delay=1, delay_level=1)

    run(story())


def test_delayed_message_can_be_recalled(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, recall_message_enable=True) as cluster, Producer(cluster.name_server) as producer:
            result = await producer.send(Message("Orders", b"x"), delay=60)
            assert await producer.recall(result) == result.msg_id
            with pytest.raises(InvalidMessageError, match="not a recall handle"):
                await producer.recall("nonsense!")
            plain = await producer.send(Message("Orders", b"x"))
            with pytest.raises(InvalidMessageError, match="has no recall handle"):
                await producer.recall(plain)

    run(story())


def test_one_way_messages_arrive(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server) as producer:
            for n in range(5):
                await producer.send_oneway(Message("Orders", b"%d" % n))
            await producer.send(Message("Orders", b"5"))  # on the same connection: what came before it is stored
            assert sorted(m.body for m in await all_stored(cluster.brokers[0], "Orders")) == [b"%d" % n for n in range(6)]

    run(story())


def test_an_idempotent_producer_is_stored_once_however_often_it_sends(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path) as cluster,
            Producer(cluster.name_server, idempotent=True, send_timeout=9) as producer,
        ):
            await cluster.create("Orders")
            broker = cluster.brokers[0]
            first = await producer.send(Message("Orders", b"first"))
            futures = [producer.send_nowait(Message("Orders", b"%d" % n)) for n in range(50)]
            await asyncio.sleep(0)  # they are written now, and stored; their answers are lost
            for channel in list((await instance_of(producer.options)).connections.open.values()):
                if channel.address == broker.advertised:
                    channel.cut("by the test")
            results = await asyncio.gather(*futures)
            found = await stored(broker, "Orders")
            assert sorted(m.body for m in found) == sorted([b"first", *(b"%d" % n for n in range(50))])
            assert {(m.msg_id, m.queue_offset) for m in found} == {(r.msg_id, r.queue_offset) for r in [first, *results]}

    run(story())


def test_hooks_see_every_send_and_may_refuse_it(tmp_path: Path) -> None:
    class Notes:
        def __init__(self) -> None:
            self.before: list[SendContext] = []
            self.after: list[tuple[Any, ...]] = []
            self.refuse = False

        def before_send(self, context: SendContext) -> None:
            self.before.append(context)
            if self.refuse:
                raise PermissionError("not today")

        def after_send(self, context: SendContext) -> None:
            self.after.append((context.kind, context.result and context.result.msg_id, context.error))
            raise RuntimeError("this is logged and nothing else")

    async def story() -> None:
        notes = Notes()
        async with servers(tmp_path) as cluster, Producer(cluster.name_server, group="orders", hooks=[notes]) as producer:
            result = await producer.send(Message("Orders", b"x", tags="a"))
            assert [(c.group, c.messages[0].tags, c.queue, c.address) for c in notes.before] == [
                ("orders", "a", result.queue, cluster.brokers[0].advertised)
            ]
            await producer.send(Message("Orders", b"x"), delay_level=1)
            await producer.send(Message("Orders", b"x"), sharding_key="k")
            await producer.send_batch([Message("Orders", b"x"), Message("Orders", b"y")])
            assert [kind for kind, _, _ in notes.after] == [
                MessageKind.NORMAL, MessageKind.DELAY, MessageKind.ORDER, MessageKind.NORMAL,
            ]  # fmt: skip
            assert notes.after[0][1] == result.msg_id
            assert len(notes.before[3].messages) == 2
            await producer.send_oneway(Message("Orders", b"gone"), sharding_key="k")
            assert notes.before[4].messages[0].body == b"gone"
            assert notes.after[4] == (MessageKind.ORDER, None, None)
            notes.refuse = True
            with pytest.raises(PermissionError, match="not today"):
                await producer.send_oneway(Message("Orders", b"x"))
            assert isinstance(notes.after[-1][2], PermissionError)
            with pytest.raises(PermissionError, match="not today"):
                await producer.send(Message("Orders", b"x"))
            assert isinstance(notes.after[-1][2], PermissionError)

    logging.getLogger("firearrow.client").setLevel(logging.CRITICAL)
    try:
        run(story())
    finally:
        logging.getLogger("firearrow.client").setLevel(logging.NOTSET)


def test_in_a_namespace_names_are_longer_on_the_broker_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster, Producer(cluster.name_server, namespace="NS", group="g") as producer:
            result = await producer.send(Message("Orders", b"x"))
            assert result.queue.topic == "Orders"
            assert producer.group == "NS%g"
            [message] = await stored(cluster.brokers[0], "NS%Orders", result.queue_id)
            assert message.get("INSTANCE_ID") == "NS"
            same = await producer.send(Message("Orders", b"y"), queue=result.queue)
            assert same.queue_offset == 1

    run(story())


def test_brokers_know_the_producer_until_it_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            producer = Producer(cluster.name_server, group="orders")
            await producer.start()
            await producer.send(Message("Orders", b"x"))
            channel = await Channel.connect(cluster.brokers[0].advertised)

            async def members() -> int:
                answer = await channel.request(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "orders"})
                return answer.body.count(b"clientId")

            assert await members() == 1
            await producer.close()
            await producer.close()
            assert await members() == 0
            await channel.close()
            with pytest.raises(ClosedError, match="not running"):
                await producer.send(Message("Orders", b"x"))
            await producer.start()
            assert (await producer.send(Message("Orders", b"x"))).status is SendStatus.OK
            await producer.close()

    run(story())


def test_broker_errors_are_raised(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, auto_create_topic_enable=False) as cluster, Producer(cluster.name_server) as producer:
            with pytest.raises(NoRouteError, match=r"no route to the topic 'Nowhere'.*create the topic"):
                await producer.send(Message("Nowhere", b"x"))
            await cluster.create("Orders")
            with pytest.raises(BrokerError, match="13 MESSAGE_ILLEGAL"):
                await producer.send(Message("Orders", b"x"), delay=timedelta(days=30))

    run(story())
