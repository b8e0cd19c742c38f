"""The pull consumer against a running name server and broker."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from firearrow.client.consumer.pull_consumer import PullConsumer
from firearrow.client.consumer.subscription import Sql
from firearrow.client.errors import BrokerError, ClientError, ClosedError
from firearrow.client.message import MessageQueue, ReceivedMessage
from firearrow.client.options import client_options
from tests.client.cluster import instance_of, servers
from tests.support.waiting import run, until

Q0 = MessageQueue("T", "broker-a", 0)


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]


async def polled(consumer: PullConsumer, count: int) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    while len(messages) < count:
        messages += await consumer.poll(10)
    return messages


def test_messages_are_polled_and_their_offset_committed(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T", 2)
            await cluster.put("T", b"a", b"b", TAGS="new", KEYS="k1 k2", own="1")
            await cluster.put("T", b"c", queue_id=1)
            async with PullConsumer(cluster.name_server, group="g", topics=["T"], start_from="earliest") as consumer:
                assert consumer.assignment() == [Q0, MessageQueue("T", "broker-a", 1)]
                messages = sorted(await polled(consumer, 3), key=lambda message: message.body)
                assert bodies(messages) == [b"a", b"b", b"c"]
                assert (messages[0].tags, messages[0].keys, messages[0].properties["own"]) == ("new", ("k1", "k2"), "1")
                assert consumer.position(Q0) == 2
                assert await consumer.lag() == {Q0: 0, MessageQueue("T", "broker-a", 1): 0}
                await cluster.put("T", b"d")
                assert bodies(await polled(consumer, 1)) == [b"d"]
            assert await cluster.committed("g", "T") == 3
            async with PullConsumer(cluster.name_server, group="g", topics=["T"]) as consumer:
                assert await consumer.poll(0.1) == []
                await cluster.put("T", b"e")
                assert bodies(await polled(consumer, 1)) == [b"e"]

    run(story())


def test_iteration_counts_a_message_when_the_next_is_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"1", b"2", b"3", b"4")
            seen = []

            async def consume_and_fail() -> None:
                async with PullConsumer(cluster.name_server, group="g", topics="T", start_from="earliest") as consumer:
                    async for message in consumer:
                        seen.append(message.body)
                        if message.body == b"3":
                            raise KeyError

            with pytest.raises(KeyError):
                await consume_and_fail()
            assert seen == [b"1", b"2", b"3"]
            assert await cluster.committed("g", "T") == 2, "the message in hand comes again"

            async with PullConsumer(cluster.name_server, group="g", topics="T") as consumer:
                async for message in consumer:
                    assert message.body == b"3"
                    break
            assert await cluster.committed("g", "T") == 3, "left in order, the message in hand is done with"

    run(story())


def test_iteration_ends_when_the_consumer_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            consumer = PullConsumer(cluster.name_server, group="g", topics=["T"])
            await consumer.start()

            async def consume() -> list[bytes]:
                return [message.body async for message in consumer]

            consuming = asyncio.ensure_future(consume())
            await asyncio.sleep(0)
            await consumer.close()
            assert await consuming == []
            with pytest.raises(ClosedError, match="has been closed"):
                await consumer.poll(0)
            with pytest.raises(ClosedError, match="create another"):
                await consumer.start()

    run(story())


def test_tags_and_sql(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, enable_property_filter=True) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"new", TAGS="new")
            await cluster.put("T", b"old", TAGS="old")
            await cluster.put("T", b"rich", TAGS="paid", amount="200")
            await cluster.put("T", b"none")
            tagged = {"T": "new || paid"}
            async with PullConsumer(cluster.name_server, group="tags", subscribe=tagged, start_from="earliest") as consumer:
                assert bodies(await polled(consumer, 2)) == [b"new", b"rich"]
            sql = {"T": Sql("amount > 100")}
            async with PullConsumer(cluster.name_server, group="sql", subscribe=sql, start_from="earliest") as consumer:
                assert bodies(await polled(consumer, 1)) == [b"rich"]
                await consumer.poll(0)
                await until(lambda: consumer.position(Q0) == 4)
            assert await cluster.committed("sql", "T") == 4, "what is not wanted is committed as well"

    run(story())


def test_permanent_error_is_raised_by_poll(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, enable_property_filter=True) as cluster:
            await cluster.create("T")
            broken = {"T": Sql("amount >")}
            async with PullConsumer(cluster.name_server, group="g", subscribe=broken) as consumer:
                with pytest.raises(BrokerError, match="23"):
                    await consumer.poll(10)

    run(story())


def test_seeking_by_offset_time_begin_and_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"0", b"1", b"2", b"3")
            async with PullConsumer(cluster.name_server, group="g", topics=["T"], auto_commit=False) as consumer:
                await consumer.seek(Q0, 2)
                assert bodies(await polled(consumer, 2)) == [b"2", b"3"]
                await consumer.seek(Q0, "earliest")
                assert bodies(await consumer.poll(10, max_messages=1)) == [b"0"]
                await consumer.seek_all("latest")
                assert await consumer.poll(0.1) == []
                assert consumer.position(Q0) == 4
                await consumer.seek(Q0, datetime.now() - timedelta(hours=1))
                assert bodies(await polled(consumer, 4)) == [b"0", b"1", b"2", b"3"]
                await consumer.seek(Q0, datetime.now() + timedelta(hours=1))
                await cluster.put("T", b"4")
                assert bodies(await polled(consumer, 1)) == [b"4"]
                assert await consumer.offset_at(Q0, "latest") == 5
                with pytest.raises(ValueError, match="'middle'"):
                    await consumer.seek(Q0, "middle")  # type: ignore[arg-type]
                with pytest.raises(ClientError, match=r"not assigned to this consumer; assigned are: T broker-a/0"):
                    await consumer.seek(MessageQueue("T", "broker-a", 9), 0)
            assert await cluster.committed("g", "T") is None, "nothing was committed, and nobody was asked to"

    run(story())


def test_manual_commit(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"0", b"1", b"2", b"3")
            async with PullConsumer(
                cluster.name_server, group="g", topics=["T"], start_from="earliest", auto_commit=False
            ) as consumer:
                await consumer.poll(10, max_messages=3)
                await consumer.commit()
                assert await cluster.committed("g", "T") == await consumer.committed(Q0) == 3
                await consumer.commit({Q0: 1})
                assert await cluster.committed("g", "T") == 1
                await consumer.poll(10)
            assert await cluster.committed("g", "T") == 1

    run(story())


def test_auto_commit_runs_periodically(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"0", b"1")
            async with PullConsumer(
                cluster.name_server, group="g", topics=["T"], start_from="earliest", persist_offset_interval=0.02
            ) as consumer:
                await polled(consumer, 2)
                await consumer.poll(0)
                while await cluster.committed("g", "T") != 2:
                    await asyncio.sleep(0.01)

    run(story())


def test_assigned_queues_are_independent_of_the_group(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T", 3)
            for queue_id in range(3):
                await cluster.put("T", b"%d" % queue_id, queue_id=queue_id, TAGS="even" if queue_id % 2 == 0 else "odd")
            async with PullConsumer(cluster.name_server, group="g", auto_commit=False, start_from="earliest") as consumer:
                assert await consumer.poll(0) == []
                queues = await consumer.queues("T")
                assert [queue.queue_id for queue in queues] == [0, 1, 2]
                await consumer.assign(queues[1:])
                assert sorted(bodies(await polled(consumer, 2))) == [b"1", b"2"]
                await consumer.assign([queues[0], queues[1]])
                assert consumer.assignment() == queues[:2]
                assert bodies(await polled(consumer, 1)) == [b"0"]
                await consumer.assign([], "even")
                assert consumer.assignment() == []
                await consumer.assign(queues, "even")
                assert sorted(bodies(await polled(consumer, 2))) == [b"0", b"2"]
                with pytest.raises(ClientError, match="use another consumer"):
                    await consumer.subscribe("T")
            subscribed = PullConsumer(cluster.name_server, group="g", topics=["T"])
            async with subscribed:
                with pytest.raises(ClientError, match="assign needs a consumer without topics"):
                    await subscribed.assign(queues)

    run(story())


def test_the_members_of_a_group_share_the_queues(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, brokers=2) as cluster:
            await cluster.create("T", 2)
            for broker in range(2):
                for queue_id in range(2):
                    await cluster.put("T", b"%d%d" % (broker, queue_id), queue_id=queue_id, broker=broker)
            one = PullConsumer(cluster.name_server, group="g", topics=["T"], start_from="earliest", persist_offset_interval=0.02)
            two = PullConsumer(cluster.name_server, group="g", topics=["T"], start_from="earliest")
            async with one:
                assert len(one.assignment()) == 4
                assert sorted(bodies(await polled(one, 4))) == [b"00", b"01", b"10", b"11"]
                await one.poll(0)
                for queue in one.assignment():
                    while await one.committed(queue) != 1:
                        await asyncio.sleep(0.01)
                async with two:
                    await until(lambda: len(one.assignment()) == len(two.assignment()) == 2)
                    assert set(one.assignment()).isdisjoint(two.assignment())
                    assert await two.poll(0.1) == [], "the other had consumed and committed"
                await until(lambda: len(one.assignment()) == 4)

    run(story())


def test_subscribe_and_unsubscribe(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.create("U")
            await cluster.put("U", b"u1", TAGS="a")
            await cluster.put("U", b"u2", TAGS="b")
            async with PullConsumer(cluster.name_server, group="g", topics=["T"], start_from="earliest") as consumer:
                await consumer.subscribe("U", "a")
                assert bodies(await polled(consumer, 1)) == [b"u1"]
                await consumer.subscribe("U", "b")
                await consumer.seek(MessageQueue("U", "broker-a", 0), 0)
                assert bodies(await polled(consumer, 1)) == [b"u2"]
                await consumer.unsubscribe("U")
                assert consumer.assignment() == [Q0]
            async with PullConsumer(cluster.name_server, group="h", start_from="earliest") as consumer:
                await consumer.subscribe("U")
                assert bodies(await polled(consumer, 2)) == [b"u1", b"u2"]

    run(story())


def test_pause_and_resume(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T", 2)
            one, two = Q0, MessageQueue("T", "broker-a", 1)
            async with PullConsumer(cluster.name_server, group="g", topics=["T"], start_from="earliest") as consumer:
                consumer.pause([one])
                await cluster.put("T", b"1", queue_id=0)
                await cluster.put("T", b"2", queue_id=1)
                assert bodies(await polled(consumer, 1)) == [b"2"]
                assert await consumer.poll(0.1) == []
                assert await consumer.lag() == {one: 1, two: 0}
                consumer.resume()
                assert bodies(await polled(consumer, 1)) == [b"1"]

    run(story())


def test_a_topic_that_is_created_later_is_found(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path) as cluster,
            PullConsumer(cluster.name_server, group="g", topics=["T"], start_from="earliest") as consumer,
        ):
            assert consumer.assignment() == []
            await cluster.create("T")
            await cluster.put("T", b"late")
            assert bodies(await polled(consumer, 1)) == [b"late"]

    run(story())


def test_a_connection_that_was_cut_is_made_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T")
            await cluster.put("T", b"before")
            async with PullConsumer(cluster.name_server, group="g", topics=["T"], start_from="earliest") as consumer:
                assert bodies(await polled(consumer, 1)) == [b"before"]
                instance = await instance_of(client_options(cluster.name_server))
                for channel in list(instance.connections.open.values()):
                    channel.abandon("cut by the test")
                await cluster.put("T", b"after")
                assert bodies(await polled(consumer, 1)) == [b"after"]

    run(story())


def test_a_namespace_is_part_of_the_names_at_the_broker_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("NS%T")
            await cluster.put("NS%T", b"x")
            async with PullConsumer(
                cluster.name_server, group="g", topics=["T"], start_from="earliest", namespace="NS"
            ) as consumer:
                (message,) = await polled(consumer, 1)
                assert (message.topic, message.queue.topic) == ("T", "NS%T")
                await consumer.poll(0)
                await consumer.unsubscribe("T")
                assert consumer.assignment() == []
            assert await cluster.committed("NS%g", "NS%T") == 1

    run(story())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"group": "g", "topics": ["a b"]}, "illegal characters"),
        ({"group": "", "topics": ["T"]}, "blank"),
        ({"group": "g", "pull_batch": 0}, "pull_batch is 0"),
        ({"group": "g", "start_from": "middle"}, "start_from is 'middle'"),
        ({"group": "g", "subscribe": {"T": "||"}}, "names no tag"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("|", r"\|")):
        PullConsumer("127.0.0.1:1", **arguments)  # type: ignore[arg-type]


def test_poll_logs_a_warning_when_the_topic_does_not_exist(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with (
            servers(tmp_path) as cluster,
            PullConsumer(cluster.name_server, group="g", topics=["Missing"]) as consumer,
        ):
            assert await consumer.poll(0) == []
            assert await consumer.poll(0.01) == []

    run(story())
    lines = [line for line in caplog.messages if line.startswith("poll by consumer group g returns no messages: no route to")]
    assert len(lines) == 1


def test_poll_logs_a_warning_when_the_name_server_is_unreachable(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with PullConsumer("127.0.0.1:1", group="g", topics=["T"]) as consumer:
            assert await consumer.poll(0) == []

    run(story())
    assert "no name server of 127.0.0.1:1 answers" in caplog.text
