from __future__ import annotations

import asyncio

import pytest

from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.client.message import Message
from tests.admin.kit import consuming, running, send


def test_group_is_created_altered_and_deleted() -> None:
    async def story() -> None:
        async with running() as (_, admin):
            assert await admin.create_group("g", {"retry_max_times": 3}) == ["broker-a"]
            with pytest.raises(AdminError, match="already exists"):
                await admin.create_group("g")
            with pytest.raises(AdminError, match="unknown group setting 'nonsense'"):
                await admin.alter_group("g", {"nonsense": 1})
            await admin.alter_group("g", {"consume_enable": False})
            config = (await admin.group_configs("g"))["broker-a"]
            assert (config.retry_max_times, config.consume_enable) == (3, False)
            assert await admin.group_names() == ["g"]
            assert "TOOLS_CONSUMER" in await admin.group_names(system=True)
            assert await admin.delete_group("g") == ["broker-a"]
            with pytest.raises(NotFoundError):
                await admin.delete_group("g")

    asyncio.run(story())


def test_progress_names_the_consuming_members() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=2)
            await send(cluster, "T", b"1", b"2", b"3")
            async with consuming(cluster, "g", "T", 3):
                await send(cluster, "T", b"4")
                await cluster.settle()
                progress = await admin.group_progress("g", topic="T", members=True)
                assert [(one.topic, one.broker, one.queue_id) for one in progress] == [("T", "broker-a", 0), ("T", "broker-a", 1)]
                connection = await admin.consumer_connection("g")
                (member,) = connection.connection_set
                assert {one.client_id for one in progress} == {member.client_id}
                assert connection.subscription_table["T"].sub_string == "*"
                info = await admin.running_info("g", member.client_id)
                assert {queue.queue_id for queue in info.mq_table if queue.topic == "T"} == {0, 1}
                (group,) = await admin.list_groups()
                assert (group.group, group.members, group.message_model) == ("g", 1, "CLUSTERING")
            await send(cluster, "T", b"5", b"6")
            (group,) = await admin.list_groups()
            assert (group.group, group.members, group.lag, group.topics) == ("g", 0, 2, ("T",))
            assert sum(one.lag for one in await admin.group_progress("g")) == 2
            with pytest.raises(NotFoundError, match="no member of group"):
                await admin.consumer_connection("g")
            with pytest.raises(NotFoundError, match="does not answer"):
                await admin.running_info("g", "nobody")

    asyncio.run(story())


def test_producers_are_listed() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T")
            async with cluster.producer(group="p") as producer:
                await producer.queues("T")
                await producer.send(Message("T", b"x"))
                assert "p" in {one.group for one in await admin.list_producers()}
                (connection,) = await admin.producer_connection("p", "T")
                assert connection.language == "PYTHON"
            with pytest.raises(NotFoundError, match="no producer"):
                await admin.producer_connection("p", "T")

    asyncio.run(story())
