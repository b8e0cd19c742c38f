"""`kill -9` under transactions, round after round on one data directory.

In the end every half message that was acknowledged has been delivered exactly once or not at all, as its producer wanted, and
none is left over.

FIREARROW_CRASH_ROUNDS and FIREARROW_CRASH_SEED as in test_kill.py.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.conformance import servers
from tests.crash.transactions import ExpectationLedger, Producer, delivered_messages, until_nothing_is_open, verify

ROUNDS = int(os.environ.get("FIREARROW_CRASH_ROUNDS", "5"))
SEED = int(os.environ.get("FIREARROW_CRASH_SEED", str(random.randrange(10**6))))
PRODUCERS = 3
IN_FLIGHT = 4
SETTINGS = {
    "mappedFileSizeCommitLog": "1048576",
    "transactionTimeOut": "200",
    "transactionCheckInterval": "300",
    "transactionCheckMax": "1000",
    "transactionOpBatchInterval": "400",
    "flushConsumerOffsetInterval": "500",
}


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_every_transaction_ends_as_its_producer_wants(tmp_path: Path) -> None:
    asyncio.run(_rounds(tmp_path))


async def _rounds(directory: Path) -> None:
    print(f"FIREARROW_CRASH_SEED={SEED}")
    book = ExpectationLedger(random.Random(SEED))
    for _ in range(ROUNDS):
        cluster = servers.start_firearrow(directory, SETTINGS)
        producers = [Producer(book, 0.5) for _ in range(PRODUCERS)]
        try:
            for producer in producers:
                await producer.connect(cluster.broker)
            working = asyncio.gather(*(producer.work() for producer in producers for _ in range(IN_FLIGHT)))
            await asyncio.sleep(book.rng.uniform(0.5, 2.0))
        finally:
            cluster.kill()
        await asyncio.wait_for(working, 20)
    cluster = servers.start_firearrow(directory, SETTINGS)
    try:
        last = Producer(book, 1.0)
        await last.connect(cluster.broker)
        await until_nothing_is_open(last.channel)
        delivered = await delivered_messages(last.channel)
    finally:
        cluster.stop()
    print(f"{len(book.fates)} sent, {len(book.acknowledged)} acknowledged, {book.asked} questions, {ROUNDS} kills")
    assert len(book.acknowledged) > 20 * ROUNDS
    assert book.asked > ROUNDS
    verify(book, delivered)
