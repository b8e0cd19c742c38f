"""`kill -9` every few seconds while transactions, delay levels, timers, recalls, retries and dead letters run together.

Afterwards every committed transaction has been delivered and no rolled back one, no deferred message is lost or was early,
messages recalled in time did not arrive, and messages sent back arrived again. What consumers read between two kills is
unchanged.

FIREARROW_CRASH_SECONDS is the duration (25 by default, 180 for a full run). FIREARROW_CRASH_SEED repeats a run as far as the
machine allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conformance import servers
from tests.crash import deferred_messages, sent_back, transactions
from tests.crash.deferred_messages import Waiting
from tests.crash.sent_back import SentBack
from tests.support.raw_client import Link, make_topic, pull_all

SECONDS = float(os.environ.get("FIREARROW_CRASH_SECONDS", "25"))
SEED = int(os.environ.get("FIREARROW_CRASH_SEED", str(random.randrange(10**6))))
BACK_TOPIC = "CrashSentBack"
PAUSE_S = 0.02
TRANSACTION_PRODUCERS = 2
# Small files that roll over often, and timers that pass through the wheel several times.
SETTINGS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "mappedFileSizeTimerLog": "65536",
    "timerRollWindowSlot": "4",
    "transactionTimeOut": "300",
    "transactionCheckInterval": "500",
    "transactionCheckMax": "100000",
    "transactionOpBatchInterval": "400",
    "flushConsumerOffsetInterval": "500",
}


@dataclass
class Ledgers:
    rng: random.Random
    transactions: transactions.ExpectationLedger = field(init=False)
    waiting: Waiting = field(init=False)
    back: SentBack = field(init=False)
    seen: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)  # messages read from each queue, in order

    def __post_init__(self) -> None:
        self.transactions = transactions.ExpectationLedger(self.rng, delayed_share=0.2, pause_s=PAUSE_S)
        self.waiting = Waiting(self.rng, PAUSE_S)
        self.back = SentBack(self.rng, BACK_TOPIC, levels=(1, 2, 3, -1), pause_s=PAUSE_S, in_flight=4)
        queues = [(transactions.TOPIC, transactions.QUEUES), (deferred_messages.TOPIC, deferred_messages.QUEUES)]
        self.seen = {(topic, number): [] for topic, count in queues for number in range(count)}


@pytest.mark.slow
@pytest.mark.timeout(240 + 2 * SECONDS)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH"] if SECONDS < 60 else ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_no_kind_of_message_is_lost(tmp_path: Path, flush: str) -> None:
    asyncio.run(_run(tmp_path, SETTINGS | {"flushDiskType": flush}))


async def _run(directory: Path, settings: dict[str, str]) -> None:
    print(f"FIREARROW_CRASH_SEED={SEED}")
    ledgers = Ledgers(random.Random(SEED))
    kills, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        cluster = servers.start_firearrow(directory, settings)
        producers = [transactions.Producer(ledgers.transactions, 0.5) for _ in range(TRANSACTION_PRODUCERS)]
        try:
            if kills == 0:
                await _make_topics(cluster.broker)
            for producer in producers:
                await producer.connect(cluster.broker)
            working = asyncio.gather(
                *(producer.work() for producer in producers for _ in range(2)),
                ledgers.waiting.work(cluster.broker),
                ledgers.back.work(cluster.broker),
                _consume(cluster.broker, ledgers),
            )
            await asyncio.sleep(ledgers.rng.uniform(1.0, 4.0))
        finally:
            cluster.kill()
        await asyncio.wait_for(working, 60)
        kills += 1
    cluster = servers.start_firearrow(directory, settings)
    try:
        await _verify(cluster.broker, ledgers)
    finally:
        cluster.stop()
    print(f"{kills} kills")
    assert kills >= SECONDS / 10


async def _make_topics(address: str) -> None:
    link = await Link.connect(address)
    for topic in (transactions.TOPIC, deferred_messages.TOPIC, BACK_TOPIC):
        await make_topic(link, topic, 2)
    link.close()


async def _consume(address: str, ledgers: Ledgers) -> None:
    """Continue reading until the broker is killed."""
    link = await Link.connect(address)
    with contextlib.suppress(ConnectionError):
        while True:
            for (topic, queue_id), bodies in ledgers.seen.items():
                _, _, records = await pull_all(link, topic, queue_id, len(bodies))
                bodies += [one.body for one in records]
            await asyncio.sleep(0.2)
    link.close()


async def _verify(address: str, ledgers: Ledgers) -> None:
    last = transactions.Producer(ledgers.transactions, 1.0)
    await last.connect(address)
    link = await Link.connect(address)
    came, deliveries = await deferred_messages.until_all_came(link, ledgers.waiting)
    returned = await sent_back.until_everything_came(link, ledgers.back)
    await transactions.until_nothing_is_open(last.channel)
    await asyncio.sleep(2)  # the last commits are delivered a second later
    delivered = await transactions.delivered_messages(last.channel)
    for (topic, queue_id), bodies in ledgers.seen.items():
        _, _, records = await pull_all(link, topic, queue_id, 0)
        assert [one.body for one in records[: len(bodies)]] == bodies, f"{topic}/{queue_id} is not what a consumer saw of it"
    link.close()
    halves, waited, back = ledgers.transactions, ledgers.waiting, ledgers.back
    print(
        f"transactions: {len(halves.acknowledged)} acknowledged, {len(delivered)} delivered, {halves.asked} questions\n"
        f"waiting: {len(waited.acknowledged)} acknowledged, {len(waited.recalled)} of them recalled in time, {came} came, "
        f"{deliveries} deliveries\n"
        f"sent back: {len(back.acknowledged)} acknowledged, {returned} came again or are dead letters"
    )
    transactions.verify(halves, delivered)
    enough = 10 * SECONDS
    assert len(halves.acknowledged) > enough
    assert len(waited.acknowledged) > enough
    assert len(back.acknowledged) > enough
    assert halves.asked > SECONDS / 5
    assert len(waited.recalled) > SECONDS / 5
