"""The members of a group: who gets what, clustering and broadcasting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firearrow.client.consumer.push_consumer import PushConsumer
from firearrow.client.message import ReceivedMessage
from tests.client.cluster import servers
from tests.client.seen import RecordingListener
from tests.support.waiting import run, until


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_members_share_the_queues_and_take_over_from_one_that_leaves(tmp_path: Path, orderly: bool) -> None:
    async def story() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.create("T", 4)
            seen = [RecordingListener(), RecordingListener()]
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
                "start_from": "earliest", "client_ip": "10.1.2.3",
            }  # fmt: skip
            seen = [RecordingListener(), RecordingListener()]
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
            again = RecordingListener()
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
                cluster.name_server, group="g", subscribe={"T": "*"}, listener=fail, broadcasting=True, start_from="earliest",
                local_offset_dir=tmp_path,
            ):  # fmt: skip
                await cluster.put("T", b"a", b"b")
                await until(lambda: len(calls) == 2)
            assert sorted(calls) == [b"a", b"b"]

    run(story())
