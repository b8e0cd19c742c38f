"""The unmodified Java client with default settings against an elected group whose leader is killed repeatedly.

FIREARROW_CHAOS_JAVA_KILLS sets the number of kills (2 by default, 60 for a full run). Every acknowledged message must be at its
acknowledged offset, in the order in which it was sent, and sends must be acknowledged again soon after each kill.

The client refreshes routes every 30 s; kills are more frequent, so it uses outdated routes most of the time.
FIREARROW_CHAOS_JAVA_PAUSE_S sets a pause between kills.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.chaos.fleet import Fleet, on_loopback, running
from tests.conformance import builds
from tests.conformance.agent import Agent
from tests.conformance.servers import TARGET
from tests.support.raw_client import Link, make_topic, pull_all
from tests.support.waiting import until

KILLS = int(os.environ.get("FIREARROW_CHAOS_JAVA_KILLS", "2"))
PAUSE_S = float(os.environ.get("FIREARROW_CHAOS_JAVA_PAUSE_S", "0"))
MEDIAN_S, WORST_S = 3.0, 6.0
TOPIC, QUEUES = "Failover", 4
LANES = 4
STEADY = 100

pytestmark = [
    pytest.mark.skipif(TARGET == "apache", reason="our brokers are under test"),
    pytest.mark.timeout(120 + (60 + PAUSE_S) * KILLS),
]


@pytest.fixture
def java(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(builds.SERVER_VERSION, tmp_path / "agent")
    yield agent
    agent.close()


@dataclass
class Book:
    sent: int = 0
    refused: list[str] = field(default_factory=list)
    places: dict[tuple[int, int], str] = field(default_factory=dict)  # (queue, offset) -> value, as acknowledged
    moments: list[tuple[float, float]] = field(default_factory=list)  # (begun, acknowledged)

    def recovered_s(self, killed: float) -> float | None:
        """Return the seconds from the kill to the next acknowledgement of a send that started after it."""
        return next((done - killed for begun, done in self.moments if begun > killed), None)


async def lane(java: Agent, number: int, book: Book, over: asyncio.Event) -> None:
    """Send messages one after another, each with a unique value."""
    for count in itertools.count():
        if over.is_set():
            return
        value = f"{number}-{count}"
        begun = time.monotonic()
        book.sent += 1
        message = {"body": value, "keys": str(number)}
        (result,) = await asyncio.wrap_future(java.submit("producer.send", name="failover", topic=TOPIC, messages=[message]))
        if "error" in result:
            book.refused.append(result["message"])
        elif result["status"] == "SEND_OK":
            place = (int(result["queueId"]), int(result["queueOffset"]))
            assert place not in book.places, f"{place} was acknowledged for {book.places[place]} and for {value}"
            book.places[place] = value
            book.moments.append((begun, time.monotonic()))


async def check(fleet: Fleet, book: Book) -> int:
    """Compare the acknowledged messages with the leader's. Return the number of duplicates."""
    link = await Link.connect((await fleet.leader()).address)
    stored = 0
    try:
        for queue_id in range(QUEUES):
            _, _, records = await pull_all(link, TOPIC, queue_id, 0)
            stored += len(records)
            values = {record.queue_offset: record.body.decode() for record in records}
            acknowledged = {offset: value for (queue, offset), value in book.places.items() if queue == queue_id}
            wrong = {offset: (value, values.get(offset)) for offset, value in acknowledged.items() if values.get(offset) != value}
            assert wrong == {}, f"queue {queue_id}: offset: (acknowledged, stored)"
            last: dict[str, int] = {}
            for _, value in sorted(acknowledged.items()):
                sender, _, number = value.partition("-")
                assert int(number) > last.get(sender, -1), f"queue {queue_id}: {value} after {last[sender]}"
                last[sender] = int(number)
    finally:
        link.close()
    return stored - len(book.places)


def test_the_leader_is_killed_under_a_java_producer(tmp_path: Path, java: Agent) -> None:
    async def story() -> None:
        async with running(on_loopback("dledger-3", tmp_path / "fleet")) as fleet:
            link = await Link.connect((await fleet.leader()).address)
            await make_topic(link, TOPIC, QUEUES)
            link.close()
            default_ms = 3_000  # of the Java client
            start = {"name": "failover", "namesrv": fleet.namesrv.address, "timeoutMs": default_ms}
            await asyncio.wrap_future(java.submit("producer.start", **start))
            book, over = Book(), asyncio.Event()
            lanes = [asyncio.ensure_future(lane(java, number, book, over)) for number in range(LANES)]
            recoveries: list[float] = []
            for number in range(KILLS):
                await asyncio.sleep(PAUSE_S if number else 0)
                recoveries.append(await one_kill(fleet, book))
            over.set()
            await asyncio.gather(*lanes)
            await fleet.complete()
            more = await check(fleet, book)
            median, worst = statistics.median(recoveries), max(recoveries)
            print(
                f"{KILLS} kills, {book.sent} sent, {len(book.places)} acknowledged, 0 lost, {more} stored and not acknowledged,"
                f" {len(book.refused)} refused; acknowledged again after {median:.2f} s, at worst {worst:.2f} s"
            )
            assert median < MEDIAN_S, recoveries
            assert worst < WORST_S, recoveries

    asyncio.run(story())


async def one_kill(fleet: Fleet, book: Book) -> float:
    def steady(before: int) -> bool:
        return len(book.moments) >= before + STEADY

    before = len(book.moments)
    await until(lambda: steady(before), "the load continues")
    leader = await fleet.leader()
    registered = await fleet.table()
    refused = len(book.refused)
    killed = time.monotonic()
    leader.kill()
    await until(lambda: book.recovered_s(killed) is not None, f"a send is acknowledged after {leader.name} is killed")
    recovered = book.recovered_s(killed)
    assert recovered is not None
    if recovered > WORST_S:
        reasons = Counter(text.split("See http")[0][:200] for text in book.refused[refused:])
        print(f"{recovered:.2f} s after {leader.name} ({leader.address}) was killed; registered were {registered}; {reasons}")
    before = len(book.moments)
    await until(lambda: steady(before), "the load continues without the killed member")
    await fleet.restore()
    return recovered
