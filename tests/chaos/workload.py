"""The load that clusters are broken under, and what must hold of it.

Every value is sent once, by a producer that does not try again: so a value that is stored twice was doubled by the brokers. Each
lane sends its values one after the other, with its number as the key that chooses the queue. A value counts as acknowledged if
the answer was SEND_OK.

What must hold once everything is mended:
- every acknowledged value is stored, and none is stored twice;
- nothing is stored that was not sent;
- of each lane, the acknowledged values of a queue are in the order in which they were sent.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from firearrow.admin.aio import Admin
from firearrow.client.errors import BrokerError, FirearrowError
from firearrow.client.message import Message, SendStatus
from firearrow.client.producer.producer import MAX_MESSAGE_SIZE, Producer
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.names import PROXY_BROKER_INFIX
from tests.chaos.fleet import Fleet, Machine
from tests.support.raw_client import Link, pull_all
from tests.support.waiting import until

LANES = 8
QUEUES = 4
# Long runs judge how soon a client gets on with the default; a single round need not wait for it.
ROUTE_INTERVAL_S = 30 if int(os.environ.get("FIREARROW_CHAOS_ROUNDS", "1")) > 1 else 2
PACE_S = 0.005  # of each lane: the machine has other things to do than to be busy

Where = tuple[str, int]  # broker name, queue


@dataclass
class ExpectationLedger:
    sent: set[str] = field(default_factory=set)
    acknowledged: dict[str, Where] = field(default_factory=dict)  # in the order of the answers
    moments: list[float] = field(default_factory=list)  # of the acknowledgements
    refused: dict[str, int] = field(default_factory=dict)  # why -> how often

    def longest_gap_s(self, since: float, until_: float) -> float:
        """The longest time without any acknowledgement in between."""
        inside = [since, *(moment for moment in self.moments if since <= moment <= until_), until_]
        return max(after - before for before, after in itertools.pairwise(inside))

    def first_after_s(self, since: float) -> float:
        return next(moment for moment in self.moments if moment > since) - since


class Workload:
    def __init__(self, fleet: Fleet, topic: str, *, body_bytes: int = 200) -> None:
        self.book = ExpectationLedger()
        self.topic = topic
        self._fleet = fleet
        self._padding = b" " + b"x" * body_bytes
        self._producer = Producer(
            fleet.namesrv.address,
            group="chaos",
            retries=0,
            send_timeout=3,
            compress_over=MAX_MESSAGE_SIZE,
            route_interval=ROUTE_INTERVAL_S,
        )
        self._lanes: list[asyncio.Task[None]] = []
        self._over = False

    async def __aenter__(self) -> Self:
        async with Admin(self._fleet.namesrv.address) as admin:
            await admin.create_topic(self.topic, queues=QUEUES)
        for machine in self._fleet.brokers:
            await until(lambda machine=machine: _has_topic(machine, self.topic), f"{machine.name} has the topic")
        await self._producer.start()
        self._lanes = [asyncio.ensure_future(self._lane(number)) for number in range(LANES)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.finish()

    async def finish(self) -> None:
        self._over = True
        await asyncio.gather(*self._lanes)
        await self._producer.close()

    async def acknowledged(self, more: int, seconds: float = 30) -> None:
        """So many further values have been acknowledged."""
        wanted = len(self.book.moments) + more
        await until(
            lambda: len(self.book.moments) >= wanted, f"{more} further sends are acknowledged: {self.book.refused}", seconds
        )

    async def _lane(self, lane: int) -> None:
        book = self.book
        key = str(lane)
        for number in itertools.count():
            if self._over:
                return
            value = f"{lane}-{number}"
            book.sent.add(value)
            await asyncio.sleep(PACE_S)
            message = Message(self.topic, value.encode() + self._padding, keys=[key])
            try:
                result = await self._producer.send(message, sharding_key=key)
            except FirearrowError as error:
                why = _why(error)
                book.refused[why] = book.refused.get(why, 0) + 1
                continue
            if result.status is SendStatus.OK:
                book.acknowledged[value] = (result.queue.broker_name.partition(PROXY_BROKER_INFIX)[0], result.queue_id)
                book.moments.append(time.monotonic())
            else:
                why = result.status.value
                book.refused[why] = book.refused.get(why, 0) + 1


async def _has_topic(machine: Machine, topic: str) -> bool:
    """Slaves copy topics every now and then; what they do not know they do not serve, although they have the messages."""
    link = await Link.connect(machine.address)
    try:
        return (await link.call(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})).code == ResponseCode.SUCCESS
    finally:
        link.close()


def _why(error: FirearrowError) -> str:
    if not isinstance(error, BrokerError):
        return type(error).__name__
    return f"{error.code} {(error.remark or '')[:50]}"


@dataclass
class Verdict:
    """What is wrong; nothing, if all is well."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)


async def verdict(load: Workload, masters: Mapping[str, Machine]) -> Verdict:
    """Reads everything that is stored, each broker name from the machine given for it."""
    found = Verdict()
    book = load.book
    stored: set[str] = set()
    for name, machine in masters.items():
        for queue_id, values in (await drain(machine, load.topic)).items():
            last: dict[str, int] = {}
            for value in values:
                if value in stored:
                    found.doubled.append(value)
                    continue
                stored.add(value)
                lane, _, number = value.partition("-")
                if value in book.acknowledged:
                    if int(number) <= last.get(lane, -1):
                        found.out_of_order.append(f"{name}/{queue_id}: {value} after {last[lane]}")
                    last[lane] = int(number)
    found.foreign = sorted(stored - book.sent)
    here = {value for value, (broker, _) in book.acknowledged.items() if broker in masters}
    found.lost = sorted(here - stored)
    return found


async def drain(machine: Machine, topic: str) -> dict[int, list[str]]:
    """The values of every queue, in their order."""
    link = await Link.connect(machine.address)
    try:
        queues = {}
        for queue_id in range(QUEUES):
            _, _, records = await pull_all(link, topic, queue_id, 0)
            queues[queue_id] = [record.body.partition(b" ")[0].decode() for record in records]
        return queues
    finally:
        link.close()
