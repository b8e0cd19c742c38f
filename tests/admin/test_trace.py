from __future__ import annotations

import asyncio

from firearrow.admin.trace import TraceEvent
from firearrow.client.message import Message, ReceivedMessage
from tests.admin.kit import running


def test_trace_has_all_events_of_a_message() -> None:
    async def story() -> list[TraceEvent]:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=1)
            taken = asyncio.Event()

            async def take(message: ReceivedMessage) -> None:
                taken.set()

            async with cluster.push_consumer(group="g", subscribe={"T": "*"}, listener=take, trace=True, start_from="earliest"):
                async with cluster.producer(group="p", trace=True) as producer:
                    msg_id = (await producer.send(Message("T", b"x", tags="t", keys="k"))).msg_id
                await asyncio.wait_for(taken.wait(), 60)
            await cluster.settle()
            events = await admin.message_trace(msg_id)
            assert {one.msg_id for one in events} == {msg_id}
            assert [one.kind for one in await admin.message_trace("k")] == [one.kind for one in events]
            return events

    events = asyncio.run(story())
    assert sorted(one.kind for one in events) == ["Pub", "Stored", "SubAfter", "SubBefore"]
    stored = next(one for one in events if one.kind == "Stored")
    assert (stored.topic, stored.tags, stored.keys) == ("T", "t", "k")
    sent = next(one for one in events if one.kind == "Pub")
    assert (sent.group, sent.topic, sent.tags, sent.keys, sent.success) == ("p", "T", "t", "k", True)
    after = next(one for one in events if one.kind == "SubAfter")
    assert (after.group, after.success, after.outcome) == ("g", True, "SUCCESS")
