"""Load on a broker that is killed, and the ledger of what it acknowledged.

Every message has an id of its own, written at the start of its body and as its key. Nothing is ever sent twice, so an id that is
stored twice, or one that was never sent, is a phantom.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from firearrow.wire.frame import Command
from tests.support.raw_client import Link, send, send_batch

TOPIC = "Crash"
QUEUES = 4
SINGLES = 4  # connections that send one message at a time, several in flight
BATCHERS = 2  # connections that send batches
IN_FLIGHT = 8
BATCH = 10

Place = tuple[str, int, int]


@dataclass
class ExpectationLedger:
    """The sent and acknowledged messages of all rounds."""

    attempted: dict[str, tuple[str, int]] = field(default_factory=dict)  # id: (topic, queue)
    acknowledged: dict[Place, str] = field(default_factory=dict)
    refused: list[Command] = field(default_factory=list)
    number: int = 0

    def new_id(self, topic: str, queue_id: int) -> str:
        self.number += 1
        key = f"id-{self.number}"
        self.attempted[key] = (topic, queue_id)
        return key

    def note(self, topic: str, answer: Command, keys: list[str]) -> None:
        if answer.code != 0:
            self.refused.append(answer)
            return
        queue_id, first = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
        for i, key in enumerate(keys):
            place = (topic, queue_id, first + i)
            assert place not in self.acknowledged, f"{place} was acknowledged twice: {self.acknowledged[place]} and {key}"
            self.acknowledged[place] = key


async def run(address: str, topics: list[str], ledger: ExpectationLedger, rng: random.Random) -> None:
    """Send until the connections break."""
    links = [await Link.connect(address) for _ in range(SINGLES + BATCHERS)]
    try:
        await asyncio.gather(
            *(_send_singles(link, topics, ledger, rng) for link in links[:SINGLES] for _ in range(IN_FLIGHT)),
            *(_send_batches(link, topics, ledger, rng) for link in links[SINGLES:]),
        )
    finally:
        for link in links:
            link.close()


async def _send_singles(link: Link, topics: list[str], ledger: ExpectationLedger, rng: random.Random) -> None:
    while True:
        topic, queue_id = rng.choice(topics), rng.randrange(QUEUES)
        key = ledger.new_id(topic, queue_id)
        try:
            answer = await send(link, topic, queue_id, _body(key, rng), key)
        except ConnectionError:
            return
        ledger.note(topic, answer, [key])


async def _send_batches(link: Link, topics: list[str], ledger: ExpectationLedger, rng: random.Random) -> None:
    while True:
        topic, queue_id = rng.choice(topics), rng.randrange(QUEUES)
        keys = [ledger.new_id(topic, queue_id) for _ in range(BATCH)]
        try:
            answer = await send_batch(link, topic, queue_id, [(_body(key, rng), key) for key in keys])
        except ConnectionError:
            return
        ledger.note(topic, answer, keys)


def _body(key: str, rng: random.Random) -> bytes:
    return key.encode() + b" " + b"x" * rng.randrange(2000)
