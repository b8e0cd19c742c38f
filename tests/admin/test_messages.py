from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.client.message import MessageQueue
from tests.admin.kit import consuming, running, send

Q0 = MessageQueue("T", "broker-a", 0)


def test_message_is_found_by_id_key_and_offset() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=1)
            (msg_id,) = await send(cluster, "T", b"hello", tags="new", keys=["A1", "A2"])
            await send(cluster, "T", b"other", keys="A1")
            await cluster.settle()
            message = await admin.find_message("T", msg_id)
            assert (message.body, message.tags, message.keys) == (b"hello", "new", ("A1", "A2"))
            assert (await admin.find_message("T", message.offset_msg_id)).msg_id == msg_id
            assert (await admin.message_by_offset_id(message.offset_msg_id)).body == b"hello"
            assert (await admin.message_at(Q0, 0)).msg_id == msg_id
            assert sorted(one.body for one in await admin.messages_by_key("T", "A1")) == [b"hello", b"other"]
            assert await admin.messages_by_key("T", "A") == []

            with pytest.raises(NotFoundError, match="has no message at offset 9; it has 0 to 1"):
                await admin.message_at(Q0, 9)
            with pytest.raises(NotFoundError, match="has the id"):
                await admin.find_message("T", "00" * 16)
            with pytest.raises(AdminError, match="is not an offset id"):
                await admin.message_by_offset_id("xyz")
            with pytest.raises(NotFoundError, match="not a broker of this cluster"):
                await admin.message_by_offset_id("7F000001" + f"{1:08X}" + f"{0:016X}")

    asyncio.run(story())


def test_messages_are_selected_by_time_and_filter() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=2)
            await send(cluster, "T", *(b"%d" % number for number in range(40)), tags="a")
            await cluster.advance(minutes=1)
            await send(cluster, "T", b"late 1", b"late 2", tags="b", keys="k")
            between = cluster.clock.now() - timedelta(seconds=30)
            seen: list[tuple[int, int]] = []
            late = await admin.messages_between("T", begin=between)
            assert sorted(one.body for one in late) == [b"late 1", b"late 2"]
            early = await admin.messages_between("T", end=between, progress=lambda done, total: seen.append((done, total)))
            assert len(early) == 40
            assert seen[-1] == (40, 40)
            assert [one.tags for one in await admin.messages_between("T", tag="b")] == ["b", "b"]
            assert len(await admin.messages_between("T", key="k")) == 2
            assert [one.body for one in await admin.messages_between("T", contains=b"e 2")] == [b"late 2"]
            assert len(await admin.messages_between("T", max_messages=7)) == 7
            assert sorted(one.body for one in await admin.peek("T", 2)) == [b"late 1", b"late 2"]
            assert (await admin.peek("T", 1, oldest=True))[0].tags == "a"

    asyncio.run(story())


def test_message_is_tracked_consumed_again_and_resent() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=1)
            (msg_id,) = await send(cluster, "T", b"hello", tags="new")
            await cluster.settle()
            message = await admin.find_message("T", msg_id)
            async with consuming(cluster, "g", "T", 1) as taken:
                await cluster.settle()
                await admin.reset_offset("g", "T", "latest")
                assert [(one.group, one.status) for one in await admin.track(message)] == [("g", "CONSUMED")]
                result = await admin.consume_directly("g", message)
                assert result.consume_result == "CR_SUCCESS"
                assert taken == [b"hello", b"hello"]
            async with consuming(cluster, "h", "T", 0, tags="old"):
                await admin.reset_offset("h", "T", "latest")
                assert ("h", "CONSUMED_BUT_FILTERED") in [(one.group, one.status) for one in await admin.track(message)]

            await admin.create_topic("U", queues=1)
            await admin.resend(message, to="U")
            (copy,) = await admin.peek("U", 1)
            assert (copy.body, copy.tags, copy.msg_id) == (b"hello", "new", msg_id)

    asyncio.run(story())
