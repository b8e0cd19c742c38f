"""The push consumer against a running name server and broker."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from firearrow.client.consumer.push_consumer import PushConsumer
from firearrow.client.consumer.subscription import Sql
from firearrow.client.errors import BrokerError, ClosedError
from firearrow.client.hooks import ConsumeContext
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.wire import fastjson
from tests.client.cluster import servers
from tests.client.seen import RecordingListener, ask, committed
from tests.support.waiting import run, until


@pytest.mark.parametrize("coroutine", [True, False], ids=["tasks", "threads"])
def test_a_listener_is_called_with_every_message_and_offsets_are_committed_at_the_end(tmp_path: Path, coroutine: bool) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T", 4)
            expected = sorted(f"{queue}-{n}".encode() for queue in range(4) for n in range(40))
            for queue in range(4):
                await cluster.put("T", *(f"{queue}-{n}".encode() for n in range(40)), queue_id=queue, TAGS="new", KEYS="k")
            seen = RecordingListener()
            listener: Any = seen.take if coroutine else seen
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=listener, start_from="earliest"
            ) as consumer:
                assert len(consumer.assignment()) >= 4
                assert sorted(await seen.wait(160)) == expected
            first = seen.messages[0]
            assert (first.topic, first.tags, first.keys, first.reconsume_times) == ("T", "new", ("k",), 0)
            assert [await cluster.committed("g", "T", queue) for queue in range(4)] == [40] * 4
            assert (threading.current_thread().name in seen.threads) == coroutine
            assert all(name.startswith("firearrow-g-") for name in seen.threads) == (not coroutine)
            # The next member continues from there.
            await cluster.put("T", b"more")
            again = RecordingListener()
            async with PushConsumer(cluster.name_server, group="g", subscribe={"T": "*"}, listener=again):
                assert await again.wait(1) == [b"more"]

    run(story())


def test_new_messages_are_delivered_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            seen = RecordingListener()
            async with PushConsumer(cluster.name_server, group="g", subscribe={"T": "*"}, listener=seen.take):
                for n in range(5):
                    began = time.monotonic()
                    await cluster.put("T", b"%d" % n)
                    await seen.wait(n + 1)
                    assert time.monotonic() - began < 10, "the pull is held at the broker, nobody polls"
            assert seen.bodies() == [b"0", b"1", b"2", b"3", b"4"]

    run(story())


def test_tags_are_compared_by_text_where_codes_are_equal(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"no", TAGS="BB")  # the hash code of Aa
            await cluster.put("T", b"yes", TAGS="Aa")
            await cluster.put("T", b"none")
            await cluster.put("T", b"other", TAGS="C")
            seen = RecordingListener()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "Aa || D"}, listener=seen.take, start_from="earliest"
            ) as consumer:
                await cluster.put("T", b"last", TAGS="D")
                assert await seen.wait(2) == [b"yes", b"last"]
                await consumer.commit()
            assert await cluster.committed("g", "T") == 5, "what nobody wants is consumed as well"

    run(story())


def test_sql92_filters_at_the_broker_and_is_refused_at_the_start_where_it_cannot(tmp_path: Path) -> None:
    async def story() -> None:
        seen = RecordingListener()
        async with servers(tmp_path / "on", enable_property_filter=True) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"1", amount="1")
            await cluster.put("T", b"2", amount="2")
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": Sql("amount > 1")}, listener=seen.take, start_from="earliest"
            ):
                await cluster.put("T", b"3", amount="3")
                assert await seen.wait(2) == [b"2", b"3"]
        async with servers(tmp_path / "off", enable_property_filter=False) as cluster:
            await cluster.create("T")
            consumer = PushConsumer(cluster.name_server, group="g", subscribe={"T": Sql("amount > 1")}, listener=seen.take)
            with pytest.raises(BrokerError, match="SQL92"):
                await consumer.start()
            with pytest.raises(ClosedError):
                consumer.assignment()

    run(story())


def test_pause_and_resume(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            seen = RecordingListener()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=seen.take, start_from="earliest"
            ) as consumer:
                await cluster.put("T", b"1")
                await seen.wait(1)
                consumer.pause()
                await cluster.put("T", b"2")  # the pull that is held at the broker still brings this one
                await seen.wait(2)
                await cluster.put("T", b"3")
                await consumer.run(timeout=0.3)
                assert seen.bodies() == [b"1", b"2"]
                consumer.resume()
                assert await seen.wait(3) == [b"1", b"2", b"3"]

    run(story())


def test_fetching_stops_at_the_held_limit(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", *(b"%d" % n for n in range(200)))
            go, seen = asyncio.Event(), RecordingListener()

            async def wait(message: ReceivedMessage) -> None:
                await go.wait()
                seen(message)

            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=wait, start_from="earliest",
                max_held_messages=40, pull_batch=10,
            ) as consumer:  # fmt: skip
                (queue,) = [queue for queue in consumer.assignment() if queue.topic == "T"]
                info = await consumer.running_info()
                await until_held(consumer, 40)
                await consumer.run(timeout=0.2)
                info = await consumer.running_info()
                held = {key.queue_id: value for key, value in info.mq_table.items() if key.topic == "T"}[queue.queue_id]
                assert held["cachedMsgCount"] == 40
                go.set()
                await seen.wait(200)

    async def until_held(consumer: PushConsumer, count: int) -> None:
        while True:
            info = await consumer.running_info()
            if any(value["cachedMsgCount"] >= count for value in info.mq_table.values()):
                return
            await asyncio.sleep(0.01)

    run(story())


@pytest.mark.parametrize("coroutine", [True, False], ids=["tasks", "threads"])
def test_close_waits_for_running_calls_only(tmp_path: Path, coroutine: bool) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", *(b"%d" % n for n in range(50)))
            begun: list[bytes] = []
            ended: list[bytes] = []
            release = threading.Event()
            let_go = asyncio.Event()

            def block(message: ReceivedMessage) -> None:
                begun.append(message.body)
                release.wait(60)
                ended.append(message.body)

            async def rest(message: ReceivedMessage) -> None:
                begun.append(message.body)
                await let_go.wait()
                ended.append(message.body)

            listener: Any = rest if coroutine else block
            consumer = PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=listener, start_from="earliest", concurrency=3
            )
            await consumer.start()
            await until(lambda: len(begun) == 3)
            closing = asyncio.get_running_loop().create_task(consumer.close())
            await asyncio.sleep(0.05)
            assert not closing.done()
            release.set()
            let_go.set()
            await closing
            assert len(begun) == 3
            assert sorted(ended) == sorted(begun) == [b"0", b"1", b"2"]
            assert await cluster.committed("g", "T") == 3
            await consumer.close()

    run(story())


def test_message_beyond_the_consume_timeout_is_redelivered(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"slow")
            go = asyncio.Event()

            async def wait(message: ReceivedMessage) -> None:
                await go.wait()

            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=wait, start_from="earliest",
                consume_timeout=0.3, persist_offset_interval=0.05,
            ):  # fmt: skip
                await committed(cluster, "g", "T", 1)
                go.set()

    run(story())


def test_an_operator_resets_the_offsets(tmp_path: Path) -> None:
    async def story(server_side: bool) -> None:
        async with servers(tmp_path / str(server_side), use_server_side_reset_offset=server_side) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"a", b"b", b"c")
            seen = RecordingListener()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=seen.take, start_from="earliest"
            ) as consumer:
                await seen.wait(3)
                await consumer.commit()
                await ask(cluster, 222, {"topic": "T", "group": "g", "timestamp": 0, "isForce": "true"})
                assert await seen.wait(6) == [b"a", b"b", b"c"] * 2
                assert consumer.consumed_offsets("T")[MessageQueue("T", "broker-a", 0)] >= 0
            assert await cluster.committed("g", "T") == 3

    run(story(True))
    run(story(False))


def test_operator_requests(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"a")
            seen = RecordingListener()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=seen, start_from="earliest"
            ) as consumer:
                await seen.wait(1)
                await until(lambda: consumer.consumed_offsets("T") == {MessageQueue("T", "broker-a", 0): 1})
                connections = fastjson.loads(await ask(cluster, 203, {"consumerGroup": "g"}))
                (connection,) = connections["connectionSet"]
                assert connection["language"] == "PYTHON"
                assert connections["consumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET"
                ids = {"consumerGroup": "g", "clientId": connection["clientId"]}
                info = fastjson.loads(await ask(cluster, 307, ids))
                assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
                assert info["statusTable"]["T"]["consumeFailedMsgs"] == 0
                assert info["statusTable"]["T"]["consumeOKTPS"] > 0
                status = fastjson.loads(await ask(cluster, 223, {"topic": "T", "group": "g"}))
                assert list(status["consumerTable"]) == [connection["clientId"]]
                told = fastjson.loads(await ask(cluster, 309, ids | {"msgId": seen.messages[0].offset_msg_id}))
                assert (told["consumeResult"], told["order"]) == ("CR_SUCCESS", False)
                assert seen.bodies() == [b"a", b"a"]

    run(story())


def test_hooks_see_every_call(tmp_path: Path) -> None:
    events: list[tuple[str, bytes, str]] = []

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            events.append(("before", context.messages[0].body, context.status))

        def after_consume(self, context: ConsumeContext) -> None:
            events.append(("after", context.messages[0].body, context.status))
            raise RuntimeError("hooks may fail")

    async def story(coroutine: bool) -> None:
        async with servers(tmp_path / str(coroutine)) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"a")
            seen = RecordingListener()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, start_from="earliest", hooks=[Hook()],
                listener=seen.take if coroutine else seen,
            ):  # fmt: skip
                await seen.wait(1)
                await until(lambda: len(events) % 2 == 0)

    run(story(True))
    run(story(False))
    assert events == [("before", b"a", ""), ("after", b"a", "CONSUME_SUCCESS")] * 2


def test_subscribe_and_unsubscribe(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.create("U")
            seen = RecordingListener()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=seen.take, start_from="earliest"
            ) as consumer:
                await consumer.subscribe("U", "x")
                await cluster.put("U", b"u", TAGS="x")
                await seen.wait(1)
                await consumer.unsubscribe("T")
                assert {queue.topic for queue in consumer.assignment()} <= {"U", "%RETRY%g"}
            assert seen.bodies() == [b"u"]

    run(story())


def test_topic_created_later_is_consumed(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            seen = RecordingListener()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"Later": "*"}, listener=seen.take, start_from="earliest"
            ):
                await cluster.create("Later")
                await cluster.put("Later", b"a")
                assert await seen.wait(1) == [b"a"]

    run(story())


def test_invalid_arguments_are_named() -> None:
    def consumer(**keywords: Any) -> PushConsumer:
        given: dict[str, Any] = {"group": "g", "subscribe": {"T": "*"}, "listener": print}
        return PushConsumer("127.0.0.1:9876", **(given | keywords))

    with pytest.raises(TypeError, match="listener is 3"):
        consumer(listener=3)
    with pytest.raises(ValueError, match="start_from is 'now'"):
        consumer(start_from="now")
    with pytest.raises(ValueError, match="batch_size is 0"):
        consumer(batch_size=0)
    with pytest.raises(ValueError, match="names no tag"):
        consumer(subscribe={"T": "||"})
    with pytest.raises(ValueError, match="illegal characters"):
        consumer(subscribe={"a b": "*"})
    with pytest.raises(ValueError, match="group"):
        consumer(group="")
    with pytest.raises(ClosedError, match="was not started"):
        consumer().assignment()
