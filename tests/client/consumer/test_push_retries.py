"""Messages that fail, in any order and in theirs: retries, dead letters."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from firearrow.client.consumer.listener import RetryLater
from firearrow.client.consumer.push_consumer import PushConsumer
from firearrow.client.message import ReceivedMessage
from tests.client.cluster import servers
from tests.client.seen import RecordingListener, committed
from tests.support.waiting import run, until


def test_a_failed_message_is_redelivered_and_becomes_a_dead_letter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "firearrow")

    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            calls: list[tuple[bytes, int, str]] = []

            async def fail(message: ReceivedMessage) -> None:
                calls.append((message.body, message.reconsume_times, message.topic))
                raise RetryLater(delay_level=1) if message.reconsume_times == 0 else RuntimeError("no")

            await cluster.put("T", b"a", TAGS="t")
            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=fail, start_from="earliest", max_attempts=2,
                persist_offset_interval=0.05,
            ):  # fmt: skip
                await committed(cluster, "g", "T", 1)
                await until(lambda: len(calls) == 2)
            assert calls == [(b"a", 0, "T"), (b"a", 1, "T")]
            dead = RecordingListener()
            async with PushConsumer(
                cluster.name_server, group="dead", subscribe={"%DLQ%g": "*"}, listener=dead.take, start_from="earliest"
            ):
                await dead.wait(1)
            assert dead.messages[0].body == b"a"
            assert dead.messages[0].system_properties["DLQ_ORIGIN_TOPIC"] == "T"

    run(story())
    lines = [(one.name, one.levelname) for one in caplog.records if "is a dead letter in %DLQ%g after 2 attempts" in one.message]
    assert sorted(lines) == [("firearrow.broker", "INFO"), ("firearrow.client", "WARNING")]
    assert "consumer started: group g, topics T" in caplog.messages


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
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=consume, start_from="earliest", batch_size=8
            ):
                await until(lambda: bool(batches))
            assert batches == [[b"1", b"2", b"bad"]]
            assert await cluster.committed("g", "T") == 3
            dead = RecordingListener()
            async with PushConsumer(
                cluster.name_server, group="dead", subscribe={"%DLQ%g": "*"}, listener=dead.take, start_from="earliest"
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
            consumer = PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=fail_once, start_from="earliest"
            )
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
                        raise RetryLater(suspend_time=0.01)
                finally:
                    busy.discard(queue)

            async def take(message: ReceivedMessage) -> None:
                consume(message)

            async with PushConsumer(
                cluster.name_server, group="g", subscribe={"T": "*"}, start_from="earliest", orderly=True,
                listener=take if coroutine else consume,
            ):  # fmt: skip
                await until(lambda: len(seen[0]) == 102 and len(seen[1]) == 102)
            for queue, stumbled in ((0, 3), (1, 70)):
                expected = [(f"{queue}-{n}".encode(), 0) for n in range(100)]
                expected[stumbled + 1 : stumbled + 1] = [(expected[stumbled][0], 1), (expected[stumbled][0], 2)]
                assert seen[queue] == expected
            assert [await cluster.committed("g", "T", queue) for queue in range(2)] == [100, 100]
            assert not cluster.brokers[0].context.locks.any_held("g", int(time.time() * 1000)), "locks are given back"

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
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=consume, start_from="earliest", orderly=True,
                max_attempts=3, suspend_time=0.01,
            ):  # fmt: skip
                await until(lambda: len(calls) == 4)
            assert calls == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
            assert await cluster.committed("g", "T") == 2
            dead = RecordingListener()
            async with PushConsumer(
                cluster.name_server, group="dead", subscribe={"%DLQ%g": "*"}, listener=dead.take, start_from="earliest"
            ):
                assert await dead.wait(1) == [b"bad"]

    run(story())
