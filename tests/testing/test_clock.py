"""Timed work of brokers happens in order when the test advances the clock, and is complete when `advance` returns."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime, timedelta

import pytest

import firearrow as fa
from firearrow.config.delay_levels import DEFAULT_DELAY_LEVELS
from firearrow.testing import AsyncCluster, Cluster, VirtualClock
from tests.support.waiting import run
from tests.testing.kit import bodies


def test_clock_without_a_cluster() -> None:
    clock = VirtualClock(datetime(2024, 2, 28, 12, tzinfo=UTC))
    clock.advance(days=1, hours=2, minutes=3, seconds=4, ms=5)
    assert clock.now() == datetime(2024, 2, 29, 14, 3, 4, 5000, tzinfo=UTC)
    assert clock.now_ms() == int(datetime(2024, 2, 29, 14, 3, 4, tzinfo=UTC).timestamp()) * 1000 + 5
    with pytest.raises(ValueError, match="must not be negative"):
        clock.advance(seconds=-1)


def test_clock_stands_still() -> None:
    with Cluster() as cluster, cluster.producer() as producer:
        before = cluster.clock.now_ms()
        producer.send(fa.Message("Orders", b"soon"), delay_level=1)
        time.sleep(0.3)
        assert cluster.messages("Orders") == []
        assert cluster.clock.now_ms() == before


def test_every_delay_level_is_delivered_on_time() -> None:
    with Cluster() as cluster, cluster.producer() as producer:
        begun = cluster.clock.now_ms()
        levels = DEFAULT_DELAY_LEVELS.split()
        for level in range(len(levels), 0, -1):
            producer.send(fa.Message("Orders", levels[level - 1].encode()), delay_level=level)
        cluster.clock.advance(hours=2)
        messages = cluster.messages("Orders")
        assert bodies(messages) == [level.encode() for level in levels]
        units = {"s": 1_000, "m": 60_000, "h": 3_600_000}
        assert [message.store_ms - begun for message in messages] == [int(text[:-1]) * units[text[-1]] for text in levels]


def test_delayed_message_is_not_a_millisecond_early() -> None:
    with Cluster() as cluster, cluster.producer() as producer:
        producer.send(fa.Message("Orders", b"level"), delay_level=18)
        cluster.clock.advance(hours=1, minutes=59, seconds=59, ms=999)
        assert cluster.messages("Orders") == []
        cluster.clock.advance(ms=1)
        assert bodies(cluster.messages("Orders")) == [b"level"]


def test_timer_messages_are_delivered_on_time() -> None:
    with Cluster() as cluster, cluster.producer() as producer:
        begun = cluster.clock.now_ms()
        for seconds in (86_400, 7, 3_600, 1, 100_000):
            producer.send(fa.Message("Orders", b"%d" % seconds), delay=seconds)
        producer.send(fa.Message("Orders", b"at"), deliver_at=cluster.clock.now() + timedelta(minutes=5, milliseconds=123))
        cluster.clock.advance(minutes=5, ms=122)
        assert bodies(cluster.messages("Orders")) == [b"1", b"7"]
        cluster.clock.advance(days=3)
        messages = cluster.messages("Orders")
        assert bodies(messages) == [b"1", b"7", b"at", b"3600", b"86400", b"100000"]
        waited = [message.store_ms - begun for message in messages]
        assert waited == [1_000, 7_000, 300_123, 3_600_000, 86_400_000, 100_000_000]


def test_recalled_message_is_not_delivered() -> None:
    with Cluster() as cluster, cluster.producer() as producer:
        kept = producer.send(fa.Message("Orders", b"kept"), delay=3_600)
        gone = producer.send(fa.Message("Orders", b"recalled"), delay=3_600)
        assert kept.recall_handle is not None
        assert gone.recall_handle is not None
        producer.recall(gone.recall_handle)
        cluster.clock.advance(hours=2)
        assert bodies(cluster.messages("Orders")) == [b"kept"]


def test_retry_delays_increase_and_end_with_a_dead_letter() -> None:
    seen: list[tuple[int, int]] = []
    with Cluster() as cluster:
        cluster.create_topic("Orders", queues=2)
        begun = cluster.clock.now_ms()

        def refuse(message: fa.ReceivedMessage) -> None:
            seen.append((message.reconsume_times, (cluster.clock.now_ms() - begun) // 1000))
            raise ValueError("not today")

        with cluster.push_consumer(group="billing", subscribe={"Orders": "*"}, listener=refuse, max_attempts=5):
            with cluster.producer() as producer:
                producer.send(fa.Message("Orders", b"poison"))
            cluster.clock.advance(hours=3)
            assert seen == [(0, 0), (1, 10), (2, 40), (3, 100), (4, 220)]
        assert bodies(cluster.dead_letters("billing")) == [b"poison"]


def test_listener_chooses_the_retry_delay() -> None:
    seen: list[int] = []
    with Cluster() as cluster:
        cluster.create_topic("Orders", queues=1)

        def later(message: fa.ReceivedMessage) -> None:
            seen.append(message.reconsume_times)
            if message.reconsume_times == 0:
                raise fa.RetryLater(delay_level=17)

        with cluster.push_consumer(group="billing", subscribe={"Orders": "*"}, listener=later), cluster.producer() as producer:
            producer.send(fa.Message("Orders", b"in an hour"))
            cluster.clock.advance(minutes=59)
            assert seen == [0]
            cluster.clock.advance(minutes=1)
            assert seen == [0, 1]


def test_chain_of_delayed_messages_is_consumed_step_by_step() -> None:
    """Each step of the chain is consumed before the clock advances to the next."""
    with Cluster() as cluster, cluster.producer() as producer:
        cluster.create_topic("Chain", queues=1)
        begun = cluster.clock.now_ms()
        steps: list[int] = []

        def step(message: fa.ReceivedMessage) -> None:
            steps.append((cluster.clock.now_ms() - begun) // 60_000)
            producer.send(fa.Message("Chain", b"on"), delay_level=16)

        with cluster.push_consumer(group="g", subscribe={"Chain": "*"}, listener=step):
            producer.send(fa.Message("Chain", b"on"))
            cluster.clock.advance(hours=3)
            assert steps == [0, 30, 60, 90, 120, 150, 180]


def test_transaction_check_reaches_the_producer() -> None:
    asked: list[int] = []
    state = fa.LocalTransactionState
    with Cluster(properties={"transactionCheckInterval": "60000"}) as cluster:
        begun = cluster.clock.now_ms()

        def check(message: fa.ReceivedMessage) -> fa.LocalTransactionState:
            asked.append((cluster.clock.now_ms() - begun) // 1000)
            return state.COMMIT if len(asked) == 3 else state.UNKNOWN

        with cluster.transaction_producer(group="orders", execute=lambda message, _: state.UNKNOWN, check=check) as producer:
            producer.send_in_transaction(fa.Message("Orders", b"paid"), None)
            cluster.clock.advance(minutes=2)
            assert cluster.messages("Orders") == []
            assert asked == [60, 120]
            cluster.clock.advance(hours=1)
            assert asked == [60, 120, 180]
        assert bodies(cluster.messages("Orders")) == [b"paid"]


def test_unresolved_transaction_is_discarded() -> None:
    state = fa.LocalTransactionState
    with Cluster(properties={"transactionCheckMax": "4"}) as cluster:
        asked = 0

        def check(message: fa.ReceivedMessage) -> fa.LocalTransactionState:
            nonlocal asked
            asked += 1
            return state.UNKNOWN

        with cluster.transaction_producer(group="orders", execute=lambda message, _: state.UNKNOWN, check=check) as producer:
            producer.send_in_transaction(fa.Message("Orders", b"lost"), None)
            cluster.clock.advance(hours=2)
        assert asked == 4
        assert cluster.messages("Orders") == []
        assert bodies(cluster.messages("TRANS_CHECK_MAX_TIME_TOPIC")) == [b"lost"]


def test_group_members_survive_a_day() -> None:
    seen: list[bytes] = []
    with Cluster() as cluster, cluster.producer() as producer:
        for orderly in (False, True):
            topic = f"Orders-{orderly}"
            cluster.create_topic(topic, queues=4)
            with cluster.push_consumer(
                group="billing", subscribe={topic: "*"}, listener=lambda message: seen.append(message.body), orderly=orderly
            ):
                cluster.clock.advance(days=1)
                producer.send(fa.Message(topic, topic.encode()))
                assert cluster.settle()
    assert seen == [b"Orders-False", b"Orders-True"]


def test_old_messages_expire() -> None:
    properties = {"mappedFileSizeCommitLog": "100000", "fileReservedTime": "48"}
    noise = random.Random(1)  # incompressible
    with Cluster(properties=properties) as cluster, cluster.producer() as producer:
        for number in range(20):
            producer.send(fa.Message("Orders", b"%02d" % number + noise.randbytes(40_000)))
        cluster.clock.advance(days=1, hours=12)
        assert len(cluster.messages("Orders")) == 20
        cluster.clock.advance(days=2)
        assert 1 <= len(cluster.messages("Orders")) <= 4  # the content of the newest file
        assert cluster.messages("Orders")[-1].body.startswith(b"19")


def test_advance_on_the_brokers_own_loop_is_rejected() -> None:
    async def scenario() -> None:
        async with AsyncCluster() as cluster:
            with pytest.raises(RuntimeError, match=r"await cluster\.advance"):
                cluster.clock.advance(seconds=1)
            await cluster.advance(seconds=1)
            before = cluster.clock.now_ms()
            await asyncio.to_thread(cluster.clock.advance, hours=1)
            assert cluster.clock.now_ms() == before + 3_600_000

    run(scenario())


def test_brokers_share_the_clock() -> None:
    with Cluster(brokers=3) as cluster, cluster.producer() as producer:
        cluster.create_topic("Orders", queues=1)
        for number in range(9):
            producer.send(fa.Message("Orders", b"%d" % number), delay_level=18 - number)
        cluster.brokers[2].stop()
        cluster.clock.advance(hours=2)
        names = [message.queue.broker_name for message in cluster.messages("Orders")]
        assert sorted(names) == ["broker-a"] * 3 + ["broker-b"] * 3
        cluster.brokers[2].start()
        cluster.clock.advance(ms=1)
        assert len(cluster.messages("Orders")) == 9


def test_advancing_two_hours_is_cheap() -> None:
    with Cluster() as cluster, cluster.producer() as producer:
        for number in range(100):
            producer.send(fa.Message("Orders", b"%d" % number), delay_level=18)
        begun = time.process_time()
        cluster.clock.advance(hours=2)
        cpu_s = time.process_time() - begun
        assert len(cluster.messages("Orders")) == 100
        assert cpu_s < 1
