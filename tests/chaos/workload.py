"""The load on clusters under faults, and the checks of what was stored.

Every value is sent once by a producer without retries, so a value that is stored twice was duplicated by the brokers. Each lane
sends its values sequentially, with its number as the key that selects the queue. A value counts as acknowledged after SEND_OK.

After the cluster is restored:
- every acknowledged value is stored, and none is stored twice;
- nothing is stored that was not sent;
- the acknowledged values of a lane are in each queue in the order they were sent.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
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
# Long runs measure how soon clients recover with the default interval; single rounds need not wait for it.
ROUTE_INTERVAL_S = 30 if int(os.environ.get("FIREARROW_CHAOS_ROUNDS", "1")) > 1 else 2
PACE_S = 0.005  # of each lane, to limit the load on the machine

Location = tuple[str, int]  # broker name, queue


@dataclass
class ExpectationLedger:
    sent: set[str] = field(default_factory=set)
    acknowledged: dict[str, Location] = field(default_factory=dict)  # in order of the responses
    moments: list[float] = field(default_factory=list)  # of the acknowledgements
    refused: dict[str, int] = field(default_factory=dict)  # reason -> count

    def longest_gap_s(self, since: float, until_: float) -> float:
        """Return the longest time without an acknowledgement."""
        inside = [since, *(moment for moment in self.moments if since <= moment <= until_), until_]
        return max(after - before for before, after in itertools.pairwise(inside))

    def first_after_s(self, since: float) -> float:
        return next(moment for moment in self.moments if moment > since) - since


class Workload:
    def __init__(self, fleet: Fleet, topic: str, *, body_bytes: int = 200) -> None:
        self.ledger = ExpectationLedger()
        self.topic = topic
        self._fleet = fleet
        self.padding = b" " + b"x" * body_bytes
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
            await until(partial(_has_topic, machine, self.topic), f"{machine.name} has the topic")
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
        """Wait until so many more values have been acknowledged."""
        wanted = len(self.ledger.moments) + more
        await until(
            lambda: len(self.ledger.moments) >= wanted, f"{more} further sends are acknowledged: {self.ledger.refused}", seconds
        )

    async def _lane(self, lane: int) -> None:
        ledger = self.ledger
        key = str(lane)
        for number in itertools.count():
            if self._over:
                return
            value = f"{lane}-{number}"
            ledger.sent.add(value)
            await asyncio.sleep(PACE_S)
            message = Message(self.topic, value.encode() + self.padding, keys=[key])
            try:
                result = await self._producer.send(message, sharding_key=key)
            except FirearrowError as error:
                why = _why(error)
                ledger.refused[why] = ledger.refused.get(why, 0) + 1
                continue
            if result.status is SendStatus.OK:
                ledger.acknowledged[value] = (result.queue.broker_name.partition(PROXY_BROKER_INFIX)[0], result.queue_id)
                ledger.moments.append(time.monotonic())
            else:
                why = result.status.value
                ledger.refused[why] = ledger.refused.get(why, 0) + 1


async def _has_topic(machine: Machine, topic: str) -> bool:
    """Wait until the slaves have copied the topic: they do not serve unknown topics, even if they have the messages."""
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
    """The violations found; empty if there are none."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)


async def verdict(load: Workload, masters: Mapping[str, Machine]) -> Verdict:
    """Check everything that is stored, reading each broker name from the given machine."""
    found = Verdict()
    ledger = load.ledger
    stored: set[str] = set()
    for name, machine in masters.items():
        for queue_id, values in (await drain(machine, load.topic, load.padding)).items():
            last: dict[str, int] = {}
            for value in values:
                if value in stored:
                    found.doubled.append(value)
                    continue
                stored.add(value)
                lane, _, number = value.partition("-")
                if value in ledger.acknowledged:
                    if int(number) <= last.get(lane, -1):
                        found.out_of_order.append(f"{name}/{queue_id}: {value} after {last[lane]}")
                    last[lane] = int(number)
    found.foreign = sorted(stored - ledger.sent)
    here = {value for value, (broker, _) in ledger.acknowledged.items() if broker in masters}
    found.lost = sorted(here - stored)
    return found


async def drain(machine: Machine, topic: str, padding: bytes) -> dict[int, list[str]]:
    """Return the values of every queue, in order; the whole body if it is not as it was sent."""
    link = await Link.connect(machine.address)
    try:
        queues = {}
        for queue_id in range(QUEUES):
            _, _, records = await pull_all(link, topic, queue_id, 0)
            queues[queue_id] = [_value(record.body, padding) for record in records]
        return queues
    finally:
        link.close()


def _value(body: bytes, padding: bytes) -> str:
    value = body.removesuffix(padding)
    return value.decode() if value + padding == body else repr(body)
