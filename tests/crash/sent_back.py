"""Messages that are sent back to a broker that is killed, and the ledger of expected redeliveries and dead letters."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field

from firearrow.wire import properties
from firearrow.wire.codes import RequestCode
from firearrow.wire.record import Record
from tests.support.raw_client import Link, patiently, pull_all, send_ext

GROUP = "crash-group"
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
IN_FLIGHT = 8
PATIENCE_S = 60


@dataclass
class SentBack:
    """Sends messages back. `levels`: the delay levels to choose from; -1 creates a dead letter at once."""

    rng: random.Random
    topic: str
    levels: tuple[int, ...] = (1, 1, -1)
    pause_s: float = 0.0
    in_flight: int = IN_FLIGHT
    acknowledged: set[tuple[str, str]] = field(default_factory=set)  # (message, expected topic)
    number: int = 0

    async def work(self, address: str) -> None:
        """Send messages back until the broker is killed."""
        link = await Link.connect(address)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(*(self._one_by_one(link) for _ in range(self.in_flight)))
        link.close()

    async def _one_by_one(self, link: Link) -> None:
        while True:
            self.number += 1
            key, level = f"m{self.number}", self.rng.choice(self.levels)
            names = properties.encode({"UNIQ_KEY": key}).decode()
            ext = send_ext(self.topic, 0, names, batched=False)
            sent = await patiently(link, RequestCode.SEND_MESSAGE_V2, ext, key.encode())
            ext = {"offset": str(int(sent.ext["msgId"][16:], 16)), "group": GROUP, "delayLevel": str(level)}
            await patiently(link, RequestCode.CONSUMER_SEND_MSG_BACK, ext)
            self.acknowledged.add((key, DEAD if level < 0 else RETRY))
            await asyncio.sleep(self.pause_s)


async def until_everything_came(link: Link, ledger: SentBack) -> int:
    """Wait for all retries and dead letters. Return their number."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = {(one.body.decode(), topic): one for topic in (RETRY, DEAD) for one in await _records(link, topic)}
        missing = ledger.acknowledged - found.keys()
        if not missing:
            break
        assert time.monotonic() < deadline, f"{len(missing)} of {len(ledger.acknowledged)} are lost, {sorted(missing)[:5]}"
        await asyncio.sleep(0.2)
    for (key, _), one in found.items():
        names = properties.parse(one.properties)
        assert (one.reconsume_times, names["RETRY_TOPIC"], names["UNIQ_KEY"]) == (1, ledger.topic, key)
    return len(found)


async def _records(link: Link, topic: str) -> list[Record]:
    return (await pull_all(link, topic, 0, 0))[2]
