from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from firearrow.admin import dead_letters
from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.client.consumer.listener import RetryLater
from firearrow.client.message import ReceivedMessage
from firearrow.testing.cluster import AsyncCluster
from tests.admin.kit import consuming, running, send


async def fail_everything(cluster: AsyncCluster, group: str, count: int) -> None:
    failed: list[str] = []

    async def refuse(message: ReceivedMessage) -> None:
        failed.append(message.msg_id)
        raise RetryLater(-1)

    async with cluster.push_consumer(group=group, subscribe={"T": "*"}, listener=refuse, start_from="earliest"):
        async with asyncio.timeout(60):
            while len(failed) < count:
                await asyncio.sleep(0.01)
        await cluster.settle()


def test_dead_letters_are_resent_only_to_the_group_that_failed() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=1)
            ids = await send(cluster, "T", b"bad 1", b"bad 2", tags="x", keys="k")
            ids += await send(cluster, "T", b"worse", tags="y")
            await fail_everything(cluster, "g", 3)
            (count,) = await admin.dead_letter_counts()
            assert (count.group, count.messages) == ("g", 3)

            letters = await admin.dead_letters_of("g")
            assert [(one.msg_id, one.topic, one.body) for one in letters] == [
                (msg_id, "T", body) for msg_id, body in zip(ids, (b"bad 1", b"bad 2", b"worse"), strict=True)
            ]
            assert [one.body for one in await admin.dead_letters_of("g", tag="y")] == [b"worse"]
            assert len(await admin.dead_letters_of("g", key="k")) == 2
            assert await admin.dead_letters_of("g", topic="U") == []
            assert (await admin.find_dead_letter("g", ids[1])).body == b"bad 2"

            async with consuming(cluster, "other", "T", 3) as others, consuming(cluster, "g", "T", 0) as taken:
                result = await admin.resend_dead_letters(letters[:2])
                assert (result.sent, result.failed) == (2, 0)
                async with asyncio.timeout(60):
                    while len(taken) < 2:
                        await asyncio.sleep(0.01)
                assert sorted(taken) == [b"bad 1", b"bad 2"]
                assert len(others) == 3
                await admin.resend_dead_letters(letters[2:], to="origin")
                async with asyncio.timeout(60):
                    while len(others) < 4 or len(taken) < 3:
                        await asyncio.sleep(0.01)
                assert Counter(others)[b"worse"] == 2

    asyncio.run(story())


def test_resending_keeps_the_rate_and_counts_failures() -> None:
    async def story() -> None:
        async with running() as (cluster, admin):
            await admin.create_topic("T", queues=1)
            await send(cluster, "T", *(b"%d" % number for number in range(5)))
            await fail_everything(cluster, "g", 5)
            letters = await admin.dead_letters_of("g")
            began = time.monotonic()
            assert (await admin.resend_dead_letters(letters, rate=20)).sent == 5
            assert time.monotonic() - began >= 4 / 20
            result = await admin.resend_dead_letters(letters, to="%DLQ%g")
            assert (result.sent, result.failed) == (0, 5)
            assert "cannot be sent to '%DLQ%g'" in result.first_failure
            with pytest.raises(NotFoundError, match="no dead letters"):
                await admin.dead_letters_of("nobody")

    asyncio.run(story())


def test_export_can_be_imported() -> None:
    letter = dead_letters.DeadLetter(
        "id", "g", "T", b"\x00\xff", "tag", ("k", "l"), {"KEYS": "k l", "ü": "ö"}, 3, 1_700_000_000_000, 16
    )
    assert dead_letters.import_line(dead_letters.export_line(letter)) == letter


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "Expecting"),
        ("{}", "'properties' is missing"),
        ('{"properties": {"a": 1}, "msg_id": "", "group": "", "topic": "", "body": ""}', "must be strings"),
        ('{"properties": {}, "msg_id": "", "group": "", "topic": "", "body": "%"}', "base64|Incorrect padding|Only base64"),
    ],
)
def test_malformed_export_line_is_rejected(line: str, says: str) -> None:
    with pytest.raises(AdminError, match=says):
        dead_letters.import_line(line)
