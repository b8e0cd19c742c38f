from __future__ import annotations

import asyncio

import pytest

from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.client.errors import BrokerError
from tests.admin.kit import consuming, running, send


def test_topic_is_created_altered_and_deleted() -> None:
    async def story() -> None:
        async with running(brokers=2) as (_, admin):
            assert await admin.create_topic("Orders", queues=3, attributes={"message.type": "FIFO"}) == ["broker-a", "broker-b"]
            found = {one.topic: one for one in await admin.list_topics()}["Orders"]
            assert (found.kind, found.read_queues, found.write_queues, found.perm) == ("normal", 6, 6, "rw")
            assert (found.message_type, found.brokers) == ("FIFO", ("broker-a", "broker-b"))
            assert "Orders" in await admin.topic_names()

            with pytest.raises(AdminError, match="already exists on broker-a, broker-b"):
                await admin.create_topic("Orders")

            assert await admin.alter_topic("Orders", perm=4, read_queues=5, broker="broker-b") == ["broker-b"]
            configs = await admin.topic_configs("Orders")
            assert [(name, one.perm, one.read_queue_nums, one.write_queue_nums) for name, one in sorted(configs.items())] == [
                ("broker-a", 6, 3, 3),
                ("broker-b", 4, 5, 3),
            ]
            assert configs["broker-b"].attributes == {"message.type": "FIFO"}

            assert await admin.delete_topic("Orders") == ["broker-a", "broker-b"]
            assert "Orders" not in await admin.topic_names()
            with pytest.raises(NotFoundError, match="topic 'Orders' does not exist"):
                await admin.delete_topic("Orders")
            with pytest.raises(NotFoundError, match="topic 'Orders' does not exist"):
                await admin.topic_status("Orders")

    asyncio.run(story())


def test_topic_status_and_groups() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=2)
            await send(cluster, "T", b"1", b"2", b"3", b"4")
            status = await admin.topic_status("T")
            assert [(one.broker, one.queue_id, one.min_offset) for one in status] == [("broker-a", 0, 0), ("broker-a", 1, 0)]
            assert sum(one.messages for one in status) == 4
            assert await admin.topic_groups("T") == []
            async with consuming(cluster, "g", "T", 4):
                assert await admin.topic_groups("T") == ["g"]
            route = await admin.topic_route("T")
            assert [(one.broker_name, one.read) for one in route.queue_counts] == [("broker-a", 2)]

    asyncio.run(story())


@pytest.mark.parametrize(("name", "says"), [("bad/name", "illegal"), ("TBW102", "system topic")])
def test_invalid_topic_names_are_rejected(name: str, says: str) -> None:
    async def story() -> None:
        async with running() as (_, admin):
            with pytest.raises((AdminError, ValueError), match=says):
                await admin.create_topic(name)

    asyncio.run(story())


def test_rejections_of_a_broker_are_raised() -> None:
    async def story() -> None:
        async with running() as (_, admin):
            with pytest.raises(BrokerError, match="nonsense"):
                await admin.create_topic("T", attributes={"nonsense": "1"})
            with pytest.raises(NotFoundError, match="the name server knows broker-a"):
                await admin.create_topic("T", broker="broker-z")

    asyncio.run(story())
