"""The push consumer against a running name server and broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firearrow.client.errors import BrokerError, ClosedError
from firearrow.client.hooks import ConsumeContext
from firearrow.client.listening import RetryLater
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.client.push_consumer import PushConsumer
from firearrow.client.subscription import Sql
from firearrow.net.channel import Channel
from firearrow.wire import fastjson
from firearrow.wire.codes import ResponseCode

from .cluster import Servers, run, servers


async def ask(cluster: Servers, code: int, ext: dict[str, Any]) -> bytes:
    """What an operator asks the first broker."""
    channel = await Channel.connect(cluster.brokers[0].advertised)
    try:
        answer = await channel.call(code, ext, timeout_ms=10_000)
    finally:
        await channel.close()
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.body


class Seen:
    """A listener that remembers, and lets a test wait for what it has seen."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.threads: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, message: ReceivedMessage) -> None:
        with self._lock:
            self.messages.append(message)
            self.threads.add(threading.current_thread().name)

    async def take(self, message: ReceivedMessage) -> None:
        self(message)

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def wait(self, count: int) -> list[bytes]:
        await until(lambda: len(self.messages) >= count)
        return self.bodies()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def committed(cluster: Servers, group: str, topic: str, offset: int) -> None:
    while await cluster.committed(group, topic) != offset:
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("coroutine", [True, False], ids=["tasks", "threads"])
def test_a_listener_is_called_with_every_message_and_offsets_are_committed_at_the_end(tmp_path: Path, coroutine: bool) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T", 4)
            expected = sorted(f"{queue}-{n}".encode() for queue in range(4) for n in range(40))
            for queue in range(4):
                await cluster.put("T", *(f"{queue}-{n}".encode() for n in range(40)), queue_id=queue, TAGS="new", KEYS="k")
            seen = Seen()
            listener: Any = seen.take if coroutine else seen
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=listener, start_from="first"
            ) as consumer:
                assert len(consumer.assignment()) >= 4
                assert sorted(await seen.wait(160)) == expected
            first = seen.messages[0]
            assert (first.topic, first.tags, first.keys, first.reconsume_times) == ("T", "new", ("k",), 0)
            assert [await cluster.committed("g", "T", queue) for queue in range(4)] == [40] * 4
            assert (threading.current_thread().name in seen.threads) == coroutine
            assert all(name.startswith("firearrow-g-") for name in seen.threads) == (not coroutine)
            # The next member goes on where this one was.
            await cluster.put("T", b"more")
            again = Seen()
            async with PushConsumer(cluster.name_server, group="g", subscribe={"T": "*"}, listener=again):
                assert await again.wait(1) == [b"more"]

    run(story())


def test_messages_that_arrive_while_it_waits_come_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            seen = Seen()
            async with PushConsumer(cluster.name_server, group="g", subscribe={"T": "*"}, listener=seen.take):
                for n in range(5):
                    began = time.monotonic()
                    await cluster.put("T", b"%d" % n)
                    await seen.wait(n + 1)
                    assert time.monotonic() - began < 5, "the pull is held at the broker, nobody polls"
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
            seen = Seen()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "Aa || D"}, listener=seen.take, start_from="first"
            ) as consumer:
                await cluster.put("T", b"last", TAGS="D")
                assert await seen.wait(2) == [b"yes", b"last"]
                await consumer.commit()
            assert await cluster.committed("g", "T") == 5, "what nobody wants is consumed as well"

    run(story())


def test_sql92_filters_at_the_broker_and_is_refused_at_the_start_where_it_cannot(tmp_path: Path) -> None:
    async def story() -> None:
        seen = Seen()
        async with servers(tmp_path / "on", enable_property_filter=True) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"1", amount="1")
            await cluster.put("T", b"2", amount="2")
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": Sql("amount > 1")}, listener=seen.take, start_from="first"
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


def test_a_failed_message_comes_again_and_becomes_a_dead_letter(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            calls: list[tuple[bytes, int, str]] = []

            async def fail(message: ReceivedMessage) -> None:
                calls.append((message.body, message.reconsume_times, message.topic))
                raise RetryLater(delay_level=1) if message.reconsume_times == 0 else RuntimeError("no")

            await cluster.put("T", b"a", TAGS="t")
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=fail, start_from="first", max_attempts=2,
                persist_offset_interval_ms=50,
            ):  # fmt: skip
                await committed(cluster, "g", "T", 1)
                await until(lambda: len(calls) == 2)
            assert calls == [(b"a", 0, "T"), (b"a", 1, "T")]
            dead = Seen()
            async with PushConsumer(
                cluster.name_server, group="dead", subscribe={"%DLQ%g": "*"}, listener=dead.take, start_from="first"
            ):
                await dead.wait(1)
            assert dead.messages[0].body == b"a"
            assert dead.messages[0].properties["DLQ_ORIGIN_TOPIC"] == "T"

    run(story())


def test_a_dead_letter_at_once_and_the_good_part_of_a_batch(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            batches: list[list[bytes]] = []

            def consume(messages: list[ReceivedMessage]) -> None:
                batches.append([message.body for message in messages])
                for at, message in enumerate(messages):
                    if message.body == b"bad":
                        raise RetryLater(-1, first=at)

            await cluster.put("T", b"1", b"2", b"bad")
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=consume, start_from="first", batch_size=8
            ):
                await until(lambda: bool(batches))
            assert batches == [[b"1", b"2", b"bad"]]
            assert await cluster.committed("g", "T") == 3
            dead = Seen()
            async with PushConsumer(
                cluster.name_server, group="dead", subscribe={"%DLQ%g": "*"}, listener=dead.take, start_from="first"
            ):
                assert await dead.wait(1) == [b"bad"]

    run(story())


def test_a_message_its_broker_does_not_take_back_is_sent_to_the_retry_topic(tmp_path: Path, monkeypatch: Any) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            calls: list[tuple[bytes, int]] = []

            async def fail_once(message: ReceivedMessage) -> None:
                calls.append((message.body, message.reconsume_times))
                if message.reconsume_times == 0:
                    raise RetryLater(1)

            await cluster.put("T", b"a", own="x")
            consumer = PushConsumer(cluster.name_server, group="g", subscribe={"T": "*"}, listener=fail_once, start_from="first")
            monkeypatch.setattr(ReceivedMessage, "commit_log_offset", property(lambda self: 10**12))
            async with consumer:
                await until(lambda: len(calls) == 2)
            assert calls == [(b"a", 0), (b"a", 1)]

    run(story())


def test_orderly_consumption_keeps_the_order_of_each_queue_through_failures(tmp_path: Path) -> None:
    async def story(coroutine: bool) -> None:
        async with servers(tmp_path / str(coroutine)) as cluster:
            await cluster.create("T", 2)
            for queue in range(2):
                await cluster.put("T", *(f"{queue}-{n}".encode() for n in range(100)), queue_id=queue)
            seen: dict[int, list[tuple[bytes, int]]] = {0: [], 1: []}
            busy: set[int] = set()

            def consume(message: ReceivedMessage) -> None:
                queue = message.queue_id
                assert queue not in busy, "two at a time of one queue"
                busy.add(queue)
                try:
                    seen[queue].append((message.body, message.reconsume_times))
                    if message.body in (b"0-3", b"1-70") and message.reconsume_times < 2:
                        raise RetryLater(suspend_ms=10)
                finally:
                    busy.discard(queue)

            async def take(message: ReceivedMessage) -> None:
                consume(message)

            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, start_from="first", orderly=True,
                listener=take if coroutine else consume,
            ):  # fmt: skip
                await until(lambda: len(seen[0]) == 102 and len(seen[1]) == 102)
            for queue, stumbled in ((0, 3), (1, 70)):
                expected = [(f"{queue}-{n}".encode(), 0) for n in range(100)]
                expected[stumbled + 1 : stumbled + 1] = [(expected[stumbled][0], 1), (expected[stumbled][0], 2)]
                assert seen[queue] == expected
            assert [await cluster.committed("g", "T", queue) for queue in range(2)] == [100, 100]
            assert not cluster.brokers[0].parts.locks.any_held("g", int(time.time() * 1000)), "locks are given back"

    run(story(True))
    run(story(False))


def test_an_orderly_message_that_fails_for_good_becomes_a_dead_letter_and_the_queue_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"bad", b"good")
            calls: list[tuple[bytes, int]] = []

            async def consume(message: ReceivedMessage) -> None:
                calls.append((message.body, message.reconsume_times))
                if message.body == b"bad":
                    raise RuntimeError("never")

            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=consume, start_from="first", orderly=True,
                max_attempts=3, suspend_ms=10,
            ):  # fmt: skip
                await until(lambda: len(calls) == 4)
            assert calls == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
            assert await cluster.committed("g", "T") == 2
            dead = Seen()
            async with PushConsumer(
                cluster.name_server, group="dead", subscribe={"%DLQ%g": "*"}, listener=dead.take, start_from="first"
            ):
                assert await dead.wait(1) == [b"bad"]

    run(story())


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_members_share_the_queues_and_take_over_from_one_that_leaves(tmp_path: Path, orderly: bool) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T", 4)
            seen = [Seen(), Seen()]
            keywords: Any = {"group": "g", "subscribe": {"T": "*"}, "orderly": orderly}
            first = PushConsumer(cluster.name_server, listener=seen[0].take, **keywords)
            second = PushConsumer(cluster.name_server, listener=seen[1].take, **keywords)

            def queues(consumer: PushConsumer) -> set[int]:
                return {queue.queue_id for queue in consumer.assignment() if queue.topic == "T"}

            async with first:
                assert queues(first) == {0, 1, 2, 3}
                async with second:
                    await until(lambda: len(queues(first)) == 2 and len(queues(second)) == 2)
                    assert queues(first) | queues(second) == {0, 1, 2, 3}
                    for queue in range(4):
                        await cluster.put("T", b"%d" % queue, queue_id=queue)
                    await until(lambda: len(seen[0].messages) + len(seen[1].messages) == 4)
                    assert {m.queue_id for m in seen[0].messages} == queues(first)
                await until(lambda: queues(first) == {0, 1, 2, 3})
                for queue in range(4):
                    await cluster.put("T", b"again", queue_id=queue)
                await until(lambda: seen[0].bodies().count(b"again") == 4)
            assert sorted(seen[0].bodies() + seen[1].bodies()) == [b"0", b"1", b"2", b"3"] + [b"again"] * 4

    run(story())


def test_broadcasting_gives_everybody_everything_and_remembers_in_a_file(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path / "servers") as cluster:
            await cluster.create("T", 2)
            keywords: Any = {
                "group": "g", "subscribe": {"T": "*"}, "broadcasting": True, "local_offset_dir": tmp_path / "offsets",
                "start_from": "first", "client_ip": "10.1.2.3",
            }  # fmt: skip
            seen = [Seen(), Seen()]
            async with (
                PushConsumer(cluster.name_server, listener=seen[0].take, **keywords),
                PushConsumer(cluster.name_server, listener=seen[1].take, **keywords),
            ):
                await cluster.put("T", b"a", queue_id=0)
                await cluster.put("T", b"b", queue_id=1)
                for one in seen:
                    assert sorted(await one.wait(2)) == [b"a", b"b"]
            stored = (tmp_path / "offsets" / "10.1.2.3@DEFAULT" / "g" / "offsets.json").read_text()
            assert '"queueId":1' in stored
            assert await cluster.committed("g", "T") is None
            await cluster.put("T", b"c")
            again = Seen()
            async with PushConsumer(cluster.name_server, listener=again.take, **keywords):
                assert await again.wait(1) == [b"c"]

    run(story())


def test_a_broadcasting_listener_that_fails_is_not_asked_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path / "servers") as cluster:
            await cluster.create("T")
            calls: list[bytes] = []

            def fail(message: ReceivedMessage) -> None:
                calls.append(message.body)
                raise ValueError("no")

            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=fail, broadcasting=True, start_from="first",
                local_offset_dir=tmp_path,
            ):  # fmt: skip
                await cluster.put("T", b"a", b"b")
                await until(lambda: len(calls) == 2)
            assert sorted(calls) == [b"a", b"b"]

    run(story())


def test_pause_and_resume(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            seen = Seen()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=seen.take, start_from="first"
            ) as consumer:
                await cluster.put("T", b"1")
                await seen.wait(1)
                consumer.pause()
                await cluster.put("T", b"2")  # the pull that is held at the broker still brings this one
                await seen.wait(2)
                await cluster.put("T", b"3")
                await consumer.run(seconds=0.3)
                assert seen.bodies() == [b"1", b"2"]
                consumer.resume()
                assert await seen.wait(3) == [b"1", b"2", b"3"]

    run(story())


def test_nothing_more_is_fetched_than_may_be_held(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", *(b"%d" % n for n in range(200)))
            go, seen = asyncio.Event(), Seen()

            async def wait(message: ReceivedMessage) -> None:
                await go.wait()
                seen(message)

            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=wait, start_from="first",
                max_held_messages=40, pull_batch=10,
            ) as consumer:  # fmt: skip
                (queue,) = [queue for queue in consumer.assignment() if queue.topic == "T"]
                info = await consumer.running_info()
                await until_held(consumer, 40)
                await consumer.run(seconds=0.2)
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
def test_close_finishes_what_is_in_hand_and_nothing_more(tmp_path: Path, coroutine: bool) -> None:
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
                release.wait(20)
                ended.append(message.body)

            async def rest(message: ReceivedMessage) -> None:
                begun.append(message.body)
                await let_go.wait()
                ended.append(message.body)

            listener: Any = rest if coroutine else block
            consumer = PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=listener, start_from="first", concurrency=3
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


def test_a_message_that_takes_too_long_is_given_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"slow")
            go = asyncio.Event()

            async def wait(message: ReceivedMessage) -> None:
                await go.wait()

            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=wait, start_from="first",
                consume_timeout_minutes=0.005, persist_offset_interval_ms=50,
            ):  # fmt: skip
                await committed(cluster, "g", "T", 1)
                go.set()

    run(story())


def test_an_operator_resets_the_offsets(tmp_path: Path) -> None:
    async def story(server_side: bool) -> None:
        async with servers(tmp_path / str(server_side), use_server_side_reset_offset=server_side) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"a", b"b", b"c")
            seen = Seen()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=seen.take, start_from="first"
            ) as consumer:
                await seen.wait(3)
                await consumer.commit()
                await ask(cluster, 222, {"topic": "T", "group": "g", "timestamp": 0, "isForce": "true"})
                assert await seen.wait(6) == [b"a", b"b", b"c"] * 2
                assert consumer.consumed_offsets("T")[MessageQueue("T", "broker-a", 0)] >= 0
            assert await cluster.committed("g", "T") == 3

    run(story(True))
    run(story(False))


def test_what_operators_can_ask(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"a")
            seen = Seen()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=seen, start_from="first"
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
            seen = Seen()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, start_from="first", hooks=[Hook()],
                listener=seen.take if coroutine else seen,
            ):  # fmt: skip
                await seen.wait(1)
                await until(lambda: len(events) % 2 == 0)

    run(story(True))
    run(story(False))
    assert events == [("before", b"a", ""), ("after", b"a", "CONSUME_SUCCESS")] * 2


def test_topics_can_be_added_and_given_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.create("U")
            seen = Seen()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=seen.take, start_from="first"
            ) as consumer:
                await consumer.subscribe("U", "x")
                await cluster.put("U", b"u", TAGS="x")
                await seen.wait(1)
                await consumer.unsubscribe("T")
                assert {queue.topic for queue in consumer.assignment()} <= {"U", "%RETRY%g"}
            assert seen.bodies() == [b"u"]

    run(story())


def test_a_topic_that_comes_into_being_later(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            seen = Seen()
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"Later": "*"}, listener=seen.take, start_from="first"
            ):
                await cluster.create("Later")
                await cluster.put("Later", b"a")
                assert await seen.wait(1) == [b"a"]

    run(story())


def test_wrong_arguments_are_named() -> None:
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
