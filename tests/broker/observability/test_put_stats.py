"""Put statistics: each message counts under the topic in which it is stored."""

from __future__ import annotations

import asyncio
from pathlib import Path

from firearrow.broker.server import Broker
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode
from firearrow.wire.message_ids import parse_offset_msg_id
from firearrow.wire.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from tests.broker.running import Client, broker, client
from tests.support.waiting import run

COMMIT_FLAG = 8


def counts(running: Broker, *topics: str) -> list[int]:
    return [running.context.stats.topic_put(topic).nums for topic in topics]


def test_put_and_get_bytes_are_equal(tmp_path: Path) -> None:
    """In the records as they are stored, of single messages, of batches, and of those that waited elsewhere."""

    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as peer:
            await peer.send("T", b"one", TAGS="a")
            await peer.send_batch("T", [(0, b"two", b"KEYS\x01k\x02"), (0, b"three", b"")])
            await peer.send_batch("T", [(0, b"four", b"__PRODUCER_ID\x01p\x02__PRODUCER_SEQ\x011\x02")])
            await peer.send("T", b"later", DELAY="1")
            assert (await peer.pull("T", 4, flags=6, hold_ms=5_000)).code == 0
            answer = await peer.pull("T", 0)
            assert counts(running, "T") == [5]
            assert len(answer.body) == running.context.stats.topic_put("T").size

    run(story())


async def commit(peer: Client, group: str, message_id: str, half_offset: int) -> int:
    ext = {"producerGroup": group, "tranStateTableOffset": half_offset, "commitLogOffset": parse_offset_msg_id(message_id)[1]}
    answer = await peer.call(RequestCode.END_TRANSACTION, ext | {"commitOrRollback": COMMIT_FLAG})
    return answer.code


def test_a_transaction_counts_in_its_topic_when_it_is_committed(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as peer:
            sent = await peer.send("T", b"half", TRAN_MSG="true", PGROUP="P", UNIQ_KEY="U1")
            assert counts(running, "T", TRANS_HALF_TOPIC) == [0, 1]
            assert await commit(peer, "P", sent.ext["msgId"], int(sent.ext["queueOffset"])) == 0
            assert counts(running, "T", TRANS_HALF_TOPIC) == [1, 1]

    run(story())


def test_a_delayed_message_counts_in_its_topic_when_it_is_delivered(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as peer:
            await peer.send("T", b"later", DELAY="1")
            assert counts(running, "T", SCHEDULE_TOPIC) == [0, 1]
            answer = await peer.pull("T", 0, flags=6, hold_ms=5_000)
            assert answer.code == 0
            assert counts(running, "T", SCHEDULE_TOPIC) == [1, 1]

    run(story())


def test_runtime_info_has_the_time_that_puts_took(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, flush="SYNC_FLUSH") as running, client(running) as peer:
            await asyncio.gather(*(peer.send("T", b"x") for _ in range(20)))
            answer = await peer.call(RequestCode.GET_BROKER_RUNTIME_INFO)
            table = fastjson.loads(answer.body)["table"]
            assert table["putMessageTimesTotal"] == "20"
            assert table["putMessageFailedTimes"] == "0"
            assert sum(running.context.stats.put_time_counts) == 20
            assert running.context.stats.put_time_max_ms < 30_000

    run(story())
