from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.offsets import Target
from firearrow.client.message import MessageQueue
from firearrow.testing.cluster import AsyncCluster
from tests.admin.kit import consuming, running, send

Q0 = MessageQueue("T", "broker-a", 0)


async def prepared(cluster: AsyncCluster, group: str = "g") -> None:
    """Three messages, a minute, two more; the group has consumed all."""
    await send(cluster, "T", b"1", b"2", b"3")
    await cluster.advance(minutes=1)
    await send(cluster, "T", b"4", b"5")
    async with consuming(cluster, group, "T", 5):
        await cluster.settle()


@pytest.mark.parametrize("server_side", ["true", "false"])
def test_group_is_moved_to_each_kind_of_position(server_side: str) -> None:
    async def story() -> None:
        async with running(properties={"useServerSideResetOffset": server_side}) as (cluster, admin):
            await admin.create_topic("T", queues=1)
            await prepared(cluster)
            assert await admin.committed_offset("g", Q0) == 5

            (planned,) = await admin.plan_reset("g", "T", "earliest")
            assert (planned.queue, planned.before, planned.after, planned.skipped) == (Q0, 5, 0, -5)
            assert await admin.committed_offset("g", Q0) == 5, "a plan changes nothing"

            moment = cluster.clock.now() - timedelta(seconds=30)
            targets: list[tuple[Target, int]] = [("earliest", 0), ("latest", 5), (moment, 3), (2, 2)]
            for to, offset in targets:
                (changed,) = await admin.reset_offset("g", "T", to)
                assert changed.after == offset
                assert await admin.committed_offset("g", Q0) == offset

    asyncio.run(story())


def test_connected_group_follows_a_reset() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=1)
            await send(cluster, "T", b"1", b"2")
            async with consuming(cluster, "g", "T", 2) as taken:
                await cluster.settle()
                await admin.reset_offset("g", "T", "earliest")
                async with asyncio.timeout(60):
                    while len(taken) < 4:
                        await asyncio.sleep(0.01)
            assert taken == [b"1", b"2"] * 2

    asyncio.run(story())


def test_impossible_resets_are_rejected() -> None:
    async def story() -> None:
        async with running() as (_, admin):
            await admin.create_topic("T", queues=2)
            await admin.create_group("g")
            with pytest.raises(NotFoundError, match=r"topic .* does not exist"):
                await admin.reset_offset("g", "Nothing", "latest")
            with pytest.raises(NotFoundError, match=r"group .* does not exist"):
                await admin.reset_offset("nobody", "T", "latest")
            with pytest.raises(AdminError, match="has 2; name the broker and the queue"):
                await admin.reset_offset("g", "T", 1)
            with pytest.raises(AdminError, match="expected 0 to 0"):
                await admin.reset_offset("g", "T", 1, queue_id=0)
            with pytest.raises(NotFoundError, match="no queue 7"):
                await admin.reset_offset("g", "T", "latest", queue_id=7)

    asyncio.run(story())


def test_offsets_are_cloned() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=1)
            await prepared(cluster)
            await admin.create_group("h")
            await admin.clone_offsets("g", "h", "T")
            assert await admin.committed_offset("h", Q0) == 5

    asyncio.run(story())
