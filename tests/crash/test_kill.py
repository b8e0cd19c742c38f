"""`kill -9` under load, in rounds on one data directory: acknowledged messages are stored, and nothing else is.

See rounds.py for the number of rounds.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from firearrow.wire.codes import RequestCode
from tests.conformance import servers
from tests.conformance.servers import Cluster
from tests.crash import load
from tests.crash.load import QUEUES, ExpectationLedger
from tests.crash.rounds import ROUNDS, SEED, TIMEOUT_S
from tests.support.raw_client import Link, make_topic, pull_all

# The log rolls over several times per round.
SETTINGS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}


@pytest.mark.timeout(TIMEOUT_S)
@ROUNDS
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", pytest.param("ASYNC_FLUSH", marks=pytest.mark.slow)])
def test_acknowledged_messages_survive_the_process(tmp_path: Path, flush: str, rounds: int) -> None:
    """A kill does not affect the page cache, so both flush modes must keep every acknowledged message."""
    asyncio.run(_rounds(tmp_path, {**SETTINGS, "flushDiskType": flush}, rounds))


async def _rounds(directory: Path, settings: dict[str, str], rounds: int) -> None:
    rng = random.Random(SEED)
    print(f"FIREARROW_CRASH_SEED={SEED}")
    ledger = ExpectationLedger()
    topics = [load.TOPIC]
    verified: dict[tuple[str, int], int] = {}
    for number in range(rounds):
        broker = servers.start_firearrow(directory, settings)
        try:
            await _verify(broker, ledger, topics, verified, rng)
            await _load_until_killed(broker, ledger, topics, number, rng)
        finally:
            broker.kill()
        if rng.random() < 0.3:
            _kill_while_it_starts(directory, settings, rng)
    broker = servers.start_firearrow(directory, settings)
    try:
        # Verify everything again: what earlier rounds found must still be there.
        await _verify(broker, ledger, topics, {}, rng)
    finally:
        broker.stop()
    print(f"{len(ledger.attempted)} sent, {len(ledger.acknowledged)} acknowledged, {rounds} kills")
    assert ledger.refused == []
    assert len(ledger.acknowledged) >= rounds


async def _load_until_killed(
    broker: Cluster, ledger: ExpectationLedger, topics: list[str], number: int, rng: random.Random
) -> None:
    link = await Link.connect(broker.broker)
    if number == 0:
        await make_topic(link, load.TOPIC, QUEUES)
    sending = asyncio.create_task(load.run(broker.broker, list(topics), ledger, rng))
    await asyncio.sleep(rng.uniform(0.2, 0.9))
    # An acknowledged topic must survive like an acknowledged message; later rounds use it.
    topic = f"{load.TOPIC}-{number}"
    await make_topic(link, topic, QUEUES)
    topics.append(topic)
    broker.kill()
    await asyncio.wait_for(sending, 60)
    link.close()


def _kill_while_it_starts(directory: Path, settings: dict[str, str], rng: random.Random) -> None:
    """Kill the broker during recovery, which must be repeatable from any point."""
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words = ["up", "--data", str(directory / "data"), "--namesrv-port", "0", "--broker-port", "0"]
    process = servers.Process([*servers.firearrow_command(), *words, *options], directory / "firearrow.log").start()
    time.sleep(rng.uniform(0.15, 0.7))
    process.kill()


async def _verify(
    broker: Cluster, ledger: ExpectationLedger, topics: list[str], verified: dict[tuple[str, int], int], rng: random.Random
) -> None:
    """Compare everything stored beyond `verified` ((topic, queue) -> offset) with the ledger."""
    if not ledger.attempted:
        return
    link = await Link.connect(broker.broker)
    stored: dict[str, tuple[str, int, int]] = {}
    fresh: list[str] = []
    for topic in topics:
        config = await link.call(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
        assert config.code == 0, f"the acknowledged topic {topic} is missing: {config}"
        for queue_id in range(QUEUES):
            begin = verified.get((topic, queue_id), 0)
            lowest, highest, records = await pull_all(link, topic, queue_id, begin)
            where = f"{topic}/{queue_id}"
            assert lowest == 0, where
            assert highest >= begin, f"{where}: {begin} messages were there before the crash, now it ends at {highest}"
            assert [one.queue_offset for one in records] == list(range(begin, highest)), f"{where}: offsets are not dense"
            for one in records:
                key = one.body.split(b" ", 1)[0].decode()
                assert (one.topic, one.queue_id) == (topic, queue_id)
                assert ledger.attempted.get(key) == (topic, queue_id), f"{where}: {key} is stored, but was never sent there"
                assert key not in stored, f"{key} is stored twice: {stored[key]} and {(topic, queue_id, one.queue_offset)}"
                stored[key] = (topic, queue_id, one.queue_offset)
            expected = {
                offset: key
                for (of_topic, of_queue, offset), key in ledger.acknowledged.items()
                if (of_topic, of_queue) == (topic, queue_id) and offset >= begin
            }
            for offset, key in expected.items():
                assert offset < highest, f"{where}: {key} was acknowledged at {offset}, the queue ends at {highest}"
                assert stored.get(key) == (topic, queue_id, offset), f"{key} was acknowledged at {offset} in {where}"
            fresh += expected.values()
            verified[topic, queue_id] = highest
    await _verify_index(link, ledger, rng.sample(fresh, min(10, len(fresh))))
    link.close()


async def _verify_index(link: Link, ledger: ExpectationLedger, keys: list[str]) -> None:
    """Check that messages are found by key. The index may be complete only shortly after the start."""
    deadline = time.monotonic() + 60
    for key in keys:
        topic, _ = ledger.attempted[key]
        ext = {"topic": topic, "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
        while (answer := await link.call(RequestCode.QUERY_MESSAGE, ext)).code != 0:
            assert time.monotonic() < deadline, f"{key} in {topic} is not found by its key: {answer}"
            await asyncio.sleep(0.1)
