"""Messages on delay levels and timers, some of them recalled, on a broker that is killed; and their ledger.

Client and broker share a clock, so the ledger knows the earliest delivery time of each message.
"""

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

TOPIC, QUEUES = "CrashWaiting", 2
LEVELS_MS = {1: 1_000, 2: 5_000, 3: 10_000}
TIMER_MS = (200, 15_000)
RECALL_MS = 6_000  # only later messages are recalled, because a kill may delay the recall
MARGIN_MS = 2_000  # a recall that succeeds this long before the due time must take effect
PATIENCE_S = 60
IN_FLIGHT = 4


@dataclass
class Waiting:
    rng: random.Random
    pause_s: float
    due_ms: dict[str, int] = field(default_factory=dict)  # earliest delivery of every sent message
    acknowledged: set[str] = field(default_factory=set)
    recalls: set[str] = field(default_factory=set)  # attempted recalls: these messages may or may not be delivered
    recalled: set[str] = field(default_factory=set)  # successful recalls: these must not be delivered
    number: int = 0

    async def work(self, address: str) -> None:
        """Send until the broker is killed."""
        link = await Link.connect(address)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(*(self._one_by_one(link, timer) for _ in range(IN_FLIGHT) for timer in (True, False)))
        link.close()

    async def _one_by_one(self, link: Link, timer: bool) -> None:
        while True:
            await (self._send_timer(link) if timer else self._send_delayed(link))
            await asyncio.sleep(self.pause_s)

    async def _send_delayed(self, link: Link) -> None:
        level = self.rng.choice([*LEVELS_MS])
        await self._send(link, "d", _now_ms() + LEVELS_MS[level], {"DELAY": str(level)})

    async def _send_timer(self, link: Link) -> None:
        delay_ms = self.rng.randrange(*TIMER_MS)
        how = self.rng.choice(["TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
        due_ms = _now_ms() + delay_ms
        key, handle = await self._send(link, "t", due_ms, {how: str(delay_ms if how == "TIMER_DELAY_MS" else due_ms)})
        if delay_ms >= RECALL_MS and self.rng.random() < 0.3:
            self.recalls.add(key)
            await patiently(link, RequestCode.RECALL_MESSAGE, {"topic": TOPIC, "recallHandle": handle})
            if _now_ms() < self.due_ms[key] - MARGIN_MS:
                self.recalled.add(key)

    async def _send(self, link: Link, kind: str, due_ms: int, names: dict[str, str]) -> tuple[str, str]:
        self.number += 1
        key = f"{kind}{self.number}"
        self.due_ms[key] = due_ms
        written = properties.encode({"UNIQ_KEY": key, "KEYS": key} | names).decode()
        ext = send_ext(TOPIC, self.rng.randrange(QUEUES), written, batched=False)
        body = key.encode() + b" " + b"x" * self.rng.randrange(500)
        answer = await patiently(link, RequestCode.SEND_MESSAGE_V2, ext, body)
        self.acknowledged.add(key)
        return key, str(answer.ext.get("recallHandle", ""))


async def until_all_came(link: Link, ledger: Waiting) -> tuple[int, int]:
    """Wait for all messages. Return the number of distinct and of all deliveries: a crash may repeat one."""
    wanted = ledger.acknowledged - ledger.recalls
    deadline = time.monotonic() + PATIENCE_S
    while True:
        records = [one for queue_id in range(QUEUES) for one in (await pull_all(link, TOPIC, queue_id, 0))[2]]
        missing = wanted - {_key(one) for one in records}
        if not missing:
            break
        late = sorted(missing, key=ledger.due_ms.__getitem__)[:5]
        assert time.monotonic() < deadline, f"{len(missing)} of {len(wanted)} are lost: {[(k, ledger.due_ms[k]) for k in late]}"
        await asyncio.sleep(0.5)
    # Recalled messages must not arrive until their due time has passed.
    await asyncio.sleep(max(0, max(ledger.due_ms.values(), default=0) + MARGIN_MS - _now_ms()) / 1000)
    records = [one for queue_id in range(QUEUES) for one in (await pull_all(link, TOPIC, queue_id, 0))[2]]
    for one in records:
        key = _key(one)
        assert key in ledger.due_ms, f"{key} was never sent"
        assert one.store_timestamp >= ledger.due_ms[key], f"{key} came {ledger.due_ms[key] - one.store_timestamp} ms early"
        assert key not in ledger.recalled, f"{key} was recalled in time, and came"
        assert properties.parse(one.properties)["KEYS"] == key
    return len({_key(one) for one in records}), len(records)


def _key(record: Record) -> str:
    return record.body.split(b" ", 1)[0].decode()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
