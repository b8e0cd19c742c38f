"""`kill -9` under sends that are repeated until they are answered, and under messages that are sent back.

An idempotent producer numbers its messages and sends again whatever was not answered, after each crash: in the end every number
is stored exactly once, where the answer said. A consumer sends back what it was given: whatever was acknowledged comes again, or
is a dead letter.

FIREARROW_CRASH_ROUNDS and FIREARROW_CRASH_SEED as in test_kill.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from firearrow.wire import properties
from firearrow.wire.codes import RequestCode
from tests.conformance import servers
from tests.crash.sent_back import SentBack, until_everything_came
from tests.support.raw_client import Link, make_topic, patiently, pull_all, send_ext

ROUNDS = int(os.environ.get("FIREARROW_CRASH_ROUNDS", "5"))
SEED = int(os.environ.get("FIREARROW_CRASH_SEED", str(random.randrange(10**6))))
TOPIC, QUEUES = "CrashRepeats", 2
PRODUCERS = 3
IN_FLIGHT = 8
SETTINGS = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "20000"}


@dataclass
class Producer:
    """Numbers its messages; `open` are those that no answer has come for yet, with their queue."""

    name: str
    rng: random.Random
    open: dict[int, int] = field(default_factory=dict)
    answered: dict[int, tuple[int, int]] = field(default_factory=dict)  # number: (queue, queue offset)
    repeats: int = 0

    async def work(self, address: str) -> None:
        """What is open first, then new messages, until the broker is gone."""
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


@pytest.mark.timeout(60 + 20 * ROUNDS)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_number_that_is_sent_until_it_is_answered_is_stored_once(tmp_path: Path, flush: str) -> None:
    asyncio.run(_repeats(tmp_path, SETTINGS | {"flushDiskType": flush}))


async def _repeats(directory: Path, settings: dict[str, str]) -> None:
    print(f"FIREARROW_CRASH_SEED={SEED}")
    rng = random.Random(SEED)
    producers = [Producer(f"p{number}", rng) for number in range(PRODUCERS)]
    for number in range(ROUNDS):
        cluster = servers.start_firearrow(directory, settings)
        try:
            if number == 0:
                await _make_topic(cluster.broker)
            working = asyncio.gather(*(producer.work(cluster.broker) for producer in producers))
            await asyncio.sleep(rng.uniform(0.3, 1.2))
        finally:
            cluster.kill()
        await asyncio.wait_for(working, 20)
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
    print(f"{sum(len(producer.answered) for producer in producers)} sent, {repeats} repeated, {ROUNDS} kills")
    assert repeats > 0
    places = {(*record.body.decode().split(" ")[:2],): (record.queue_id, record.queue_offset) for record in stored}
    assert len(places) == len(stored), "a number is stored twice"
    expected = {(one.name, str(number)): place for one in producers for number, place in one.answered.items()}
    assert places == expected


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_what_was_sent_back_comes_again_or_is_a_dead_letter(tmp_path: Path) -> None:
    asyncio.run(_retries(tmp_path))


async def _retries(directory: Path) -> None:
    print(f"FIREARROW_CRASH_SEED={SEED}")
    book = SentBack(random.Random(SEED), TOPIC)
    for number in range(ROUNDS):
        cluster = servers.start_firearrow(directory, SETTINGS)
        try:
            if number == 0:
                await _make_topic(cluster.broker)
            working = asyncio.ensure_future(book.work(cluster.broker))
            await asyncio.sleep(book.rng.uniform(0.5, 2.0))
        finally:
            cluster.kill()
        await asyncio.wait_for(working, 20)
    cluster = servers.start_firearrow(directory, SETTINGS)
    try:
        link = await Link.connect(cluster.broker)
        found = await until_everything_came(link, book)
        link.close()
    finally:
        cluster.stop()
    print(f"{len(book.acknowledged)} sent back, {found} found, {ROUNDS} kills")
    assert len(book.acknowledged) > 10 * ROUNDS


async def _make_topic(address: str) -> None:
    link = await Link.connect(address)
    await make_topic(link, TOPIC, QUEUES)
    link.close()
