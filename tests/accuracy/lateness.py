"""Messages sent at a steady pace to a broker in its own process, and their arrival times at a long-polling consumer.

Producer, broker and consumer share one machine and one clock. Every message has its own key and must arrive exactly once.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from firearrow.wire import properties
from firearrow.wire.codes import RequestCode
from firearrow.wire.frame import Command
from firearrow.wire.record import decode_all
from tests.conformance import servers
from tests.support.raw_client import Link, make_topic, pull_all, send_ext

FULL = os.environ.get("FIREARROW_ACCURACY") == "full"
TOPIC = "Accuracy"
QUEUES = 4
PACE_S = 0.02  # between two groups of sends
HOLD_MS = 1_000
SUSPEND, WITH_EXPRESSION = 2, 4


def now_ms() -> float:
    return time.time_ns() / 1e6


class Trial:
    """One broker with one topic, the messages sent to it and their arrival times."""

    def __init__(self, producer: Link, consumers: Sequence[Link]) -> None:
        self.arrived_ms: dict[str, float] = {}
        self._producer = producer
        self._answers: list[asyncio.Future[Command]] = []
        self._consuming = [asyncio.create_task(self._consume(link, queue)) for queue, link in enumerate(consumers)]

    async def send_over(self, seconds: float, messages: Sequence[Mapping[str, str]]) -> None:
        """Send messages, given by their properties, evenly over the time, and wait for all responses."""
        began, sent = time.monotonic(), 0
        while sent < len(messages):
            due = min(len(messages), int(len(messages) * (time.monotonic() - began) / seconds) + 1)
            for number in range(sent, due):
                self._send(number % QUEUES, messages[number])
            sent = due
            await asyncio.sleep(PACE_S)
        answers = await asyncio.wait_for(asyncio.gather(*self._answers), 20)
        assert {answer.code for answer in answers} == {0}, next(answer for answer in answers if answer.code)

    async def all_arrived(self, count: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while len(self.arrived_ms) < count:
            assert time.monotonic() < deadline, f"{count - len(self.arrived_ms)} of {count} messages did not arrive"
            failed = next((task for task in self._consuming if task.done()), None)
            if failed is not None:
                failed.result()
            await asyncio.sleep(0.05)

    async def stored_ms(self, topic: str, queue_id: int) -> dict[str, int]:
        """Return the store times of the messages of a queue by key."""
        _, _, records = await pull_all(self._producer, topic, queue_id, 0)
        return {_key(record.properties): record.store_timestamp for record in records}

    def close(self) -> None:
        for task in self._consuming:
            task.cancel()

    def _send(self, queue_id: int, names: Mapping[str, str]) -> None:
        ext = send_ext(TOPIC, queue_id, properties.encode(names).decode(), batched=False)
        self._answers.append(self._producer.request(RequestCode.SEND_MESSAGE_V2, ext, b"x" * 100))

    async def _consume(self, link: Link, queue_id: int) -> None:
        ext = {"consumerGroup": "reader", "topic": TOPIC, "queueId": str(queue_id), "maxMsgNums": "32", "commitOffset": "0"}
        ext |= {
            "sysFlag": str(SUSPEND | WITH_EXPRESSION),
            "suspendTimeoutMillis": str(HOLD_MS),
            "subscription": "*",
            "subVersion": "0",
        }
        ext["queueOffset"] = "0"
        while True:
            answer = await link.call(RequestCode.PULL_MESSAGE, ext)
            arrival_ms = now_ms()
            for record in decode_all(answer.body):
                key = _key(record.properties)
                assert key not in self.arrived_ms, f"{key} arrived twice"
                self.arrived_ms[key] = arrival_ms
            ext["queueOffset"] = answer.ext["nextBeginOffset"]


@asynccontextmanager
async def trial(directory: Path) -> AsyncIterator[Trial]:
    cluster = servers.start_firearrow(directory, {})
    links = [await Link.connect(cluster.broker) for _ in range(1 + QUEUES)]
    try:
        await make_topic(links[0], TOPIC, QUEUES)
        running = Trial(links[0], links[1:])
        try:
            yield running
        finally:
            running.close()
    finally:
        for link in links:
            link.close()
        cluster.stop()


@dataclass(frozen=True)
class Lateness:
    """Delays between due and arrival times in ms, sorted."""

    values: Sequence[float]

    @classmethod
    def of(cls, due_ms: Mapping[str, float], arrived_ms: Mapping[str, float]) -> Lateness:
        assert due_ms.keys() == arrived_ms.keys()
        return cls(sorted(arrived_ms[key] - due for key, due in due_ms.items()))

    def share_within(self, limit_ms: float) -> float:
        return sum(1 for value in self.values if value <= limit_ms) / len(self.values)

    def __str__(self) -> str:
        shares = ", ".join(f"{100 * share:g} % {self.values[int(share * (len(self.values) - 1))]:.1f}" for share in _shares())
        return f"{len(self.values)} messages; ms late: {shares}"


def _shares() -> Iterable[float]:
    return 0.0, 0.5, 0.99, 0.999, 1.0


def _key(raw: bytes) -> str:
    return (properties.find(raw, b"UNIQ_KEY") or b"").decode()
