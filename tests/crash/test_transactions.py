"""`kill -9` under transactions, in rounds on one data directory.

Afterwards every acknowledged half message has been delivered exactly once or not at all, as its producer decided, and none is
left.

See rounds.py for the number of rounds.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.conformance import servers
from tests.crash.rounds import ROUNDS, SEED, TIMEOUT_S
from tests.crash.transactions import ExpectationLedger, Producer, delivered_messages, until_nothing_is_open, verify

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


@pytest.mark.timeout(TIMEOUT_S)
@ROUNDS
def test_every_transaction_ends_as_decided(tmp_path: Path, rounds: int) -> None:
    asyncio.run(_rounds(tmp_path, rounds))


async def _rounds(directory: Path, rounds: int) -> None:
    print(f"FIREARROW_CRASH_SEED={SEED}")
    ledger = ExpectationLedger(random.Random(SEED))
    for _ in range(rounds):
        cluster = servers.start_firearrow(directory, SETTINGS)
        producers = [Producer(ledger, 0.5) for _ in range(PRODUCERS)]
        try:
            for producer in producers:
                await producer.connect(cluster.broker)
            working = asyncio.gather(*(producer.work() for producer in producers for _ in range(IN_FLIGHT)))
            await asyncio.sleep(ledger.rng.uniform(0.5, 2.0))
        finally:
            cluster.kill()
        await asyncio.wait_for(working, 60)
    cluster = servers.start_firearrow(directory, SETTINGS)
    try:
        last = Producer(ledger, 1.0)
        await last.connect(cluster.broker)
        await until_nothing_is_open(last.channel)
        delivered = await delivered_messages(last.channel)
    finally:
        cluster.stop()
    print(f"{len(ledger.fates)} sent, {len(ledger.acknowledged)} acknowledged, {ledger.asked} questions, {rounds} kills")
    assert len(ledger.acknowledged) >= rounds
    assert ledger.asked > 0
    verify(ledger, delivered)
