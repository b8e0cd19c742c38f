"""`kill -9` under idempotent sends that are repeated until acknowledged, and under messages that are sent back.

An idempotent producer numbers its messages and repeats every unacknowledged one after a crash: each number is stored exactly
once, at the acknowledged position. A consumer sends messages back: every acknowledged one is redelivered or becomes a dead
letter.

See rounds.py for the number of rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from firearrow.wire import properties
from firearrow.wire.codes import RequestCode
from tests.conformance import servers
from tests.crash.rounds import ROUNDS, SEED, TIMEOUT_S
from tests.crash.sent_back import SentBack, until_everything_came
from tests.support.raw_client import Link, make_topic, patiently, pull_all, send_ext

TOPIC, QUEUES = "CrashRepeats", 2
PRODUCERS = 3
IN_FLIGHT = 8
SETTINGS = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "20000"}


@dataclass
class Producer:
    """A producer that numbers its messages. `open` maps unacknowledged numbers to their queue."""

    name: str
    rng: random.Random
    open: dict[int, int] = field(default_factory=dict)
    answered: dict[int, tuple[int, int]] = field(default_factory=dict)  # number: (queue, queue offset)
    repeats: int = 0

    async def work(self, address: str) -> None:
        """Repeat the open messages, then send new ones until the broker is killed."""
        link = await Link.connect(address)
        self.repeats += len(self.open)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(*(self._send(link, number) for number in list(self.open)))
            await asyncio.gather(*(self._send_new(link) for _ in range(IN_FLIGHT)))
        link.close()

    async def finish(self, link: Link) -> None:
        await asyncio.gather(*(self._send(link, number) for number in list(self.open)))

    async def _send_new(self, link: Link) -> None:
        while True:
            number = len(self.open) + len(self.answered)
            self.open[number] = self.rng.randrange(QUEUES)
            await self._send(link, number)

    async def _send(self, link: Link, number: int) -> None:
        names = {"__PRODUCER_ID": self.name, "__PRODUCER_SEQ": str(number), "UNIQ_KEY": f"{self.name}-{number}"}
        ext = send_ext(TOPIC, self.open[number], properties.encode(names).decode(), batched=False)
        body = f"{self.name} {number} ".encode() + b"x" * self.rng.randrange(500)
        answer = await patiently(link, RequestCode.SEND_MESSAGE_V2, ext, body)
        self.answered[number] = (self.open.pop(number), int(answer.ext["queueOffset"]))


@pytest.mark.timeout(TIMEOUT_S)
@ROUNDS
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", pytest.param("ASYNC_FLUSH", marks=pytest.mark.slow)])
def test_message_repeated_until_acknowledged_is_stored_once(tmp_path: Path, flush: str, rounds: int) -> None:
    asyncio.run(_repeats(tmp_path, SETTINGS | {"flushDiskType": flush}, rounds))


async def _repeats(directory: Path, settings: dict[str, str], rounds: int) -> None:
    print(f"FIREARROW_CRASH_SEED={SEED}")
    rng = random.Random(SEED)
    producers = [Producer(f"p{number}", rng) for number in range(PRODUCERS)]
    for number in range(rounds):
        cluster = servers.start_firearrow(directory, settings)
        try:
            if number == 0:
                await _make_topic(cluster.broker)
            working = asyncio.gather(*(producer.work(cluster.broker) for producer in producers))
            await asyncio.sleep(rng.uniform(0.3, 1.2))
        finally:
            cluster.kill()
        await asyncio.wait_for(working, 60)
    cluster = servers.start_firearrow(directory, settings)
    try:
        link = await Link.connect(cluster.broker)
        for producer in producers:
            await producer.finish(link)
        stored = [record for queue_id in range(QUEUES) for record in (await pull_all(link, TOPIC, queue_id, 0))[2]]
        link.close()
    finally:
        cluster.stop()
    repeats = sum(producer.repeats for producer in producers)
    print(f"{sum(len(producer.answered) for producer in producers)} sent, {repeats} repeated, {rounds} kills")
    assert repeats > 0
    places = {(*record.body.decode().split(" ")[:2],): (record.queue_id, record.queue_offset) for record in stored}
    assert len(places) == len(stored), "a number is stored twice"
    expected = {(one.name, str(number)): place for one in producers for number, place in one.answered.items()}
    assert places == expected


@pytest.mark.timeout(TIMEOUT_S)
@ROUNDS
def test_message_sent_back_is_redelivered_or_a_dead_letter(tmp_path: Path, rounds: int) -> None:
    asyncio.run(_retries(tmp_path, rounds))


async def _retries(directory: Path, rounds: int) -> None:
    print(f"FIREARROW_CRASH_SEED={SEED}")
    ledger = SentBack(random.Random(SEED), TOPIC)
    for number in range(rounds):
        cluster = servers.start_firearrow(directory, SETTINGS)
        try:
            if number == 0:
                await _make_topic(cluster.broker)
            working = asyncio.ensure_future(ledger.work(cluster.broker))
            await asyncio.sleep(ledger.rng.uniform(0.5, 2.0))
        finally:
            cluster.kill()
        await asyncio.wait_for(working, 60)
    cluster = servers.start_firearrow(directory, SETTINGS)
    try:
        link = await Link.connect(cluster.broker)
        found = await until_everything_came(link, ledger)
        link.close()
    finally:
        cluster.stop()
    print(f"{len(ledger.acknowledged)} sent back, {found} found, {rounds} kills")
    assert len(ledger.acknowledged) >= rounds


async def _make_topic(address: str) -> None:
    link = await Link.connect(address)
    await make_topic(link, TOPIC, QUEUES)
    link.close()
