"""`kill -9` during retention, the deletion of topics and recovery, with damaged bytes in the log.

No queue offset is used twice, no changed body is served, and a consumer is never stuck.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from firearrow.wire import record
from firearrow.wire.codes import RequestCode, ResponseCode
from tests.conformance import servers
from tests.conformance.servers import Cluster
from tests.crash.rounds import ROUNDS, SEED, TIMEOUT_S
from tests.support.raw_client import Link, make_topic, send

SEGMENT = 1024 * 1024
SETTINGS = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "fileReservedTime": "0",
}
_MOVED = (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)


@dataclass
class Expectation:
    """Bodies by topic and queue offset, and the end of the queue 0 of each topic."""

    bodies: dict[tuple[str, int], bytes] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)

    def note(self, topic: str, offset: int, body: bytes) -> None:
        assert (topic, offset) not in self.bodies, f"{topic} uses queue offset {offset} twice"
        self.bodies[topic, offset] = body
        self.ends[topic] = max(self.ends.get(topic, 0), offset + 1)


@pytest.mark.timeout(TIMEOUT_S)
@ROUNDS
def test_maintenance_is_interrupted(tmp_path: Path, rounds: int) -> None:
    print(f"FIREARROW_CRASH_SEED={SEED}")
    asyncio.run(_rounds(tmp_path, rounds, random.Random(SEED)))


async def _rounds(directory: Path, rounds: int, rng: random.Random) -> None:
    expected = Expectation()
    for number in range(rounds):
        broker = servers.start_firearrow(directory, SETTINGS)
        try:
            await _verify(broker, expected)
            await _maintain(broker, expected, number, rng)
        finally:
            broker.kill()
        _flip_bits(directory, rng)
        if rng.random() < 0.5:
            _kill_while_it_starts(directory, rng)
    broker = servers.start_firearrow(directory, SETTINGS)
    try:
        await _verify(broker, expected)
    finally:
        broker.stop()


async def _maintain(broker: Cluster, expected: Expectation, number: int, rng: random.Random) -> None:
    """Fill some segments, delete a topic and expired files, and return while this is in progress."""
    link = await Link.connect(broker.broker)
    for topic in ("Rare", "Filler", f"Gone{number}"):
        await make_topic(link, topic, 1)
    await _send(link, expected, "Rare", 10, 20, rng)
    await _send(link, expected, f"Gone{number}", 30, 100, rng)
    await _send(link, expected, "Filler", 60, 60_000, rng)
    requests = [
        link.request(RequestCode.DELETE_EXPIRED_COMMITLOG, {}),
        link.request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": f"Gone{number}"}),
    ]
    expected.ends.pop(f"Gone{number}")
    await asyncio.wait(requests, timeout=rng.choice((0, 0.05, 0.3)))
    link.close()


async def _send(link: Link, expected: Expectation, topic: str, count: int, size: int, rng: random.Random) -> None:
    for _ in range(count):
        body = rng.randbytes(size)
        answer = await send(link, topic, 0, body, "k")
        assert answer.code == ResponseCode.SUCCESS, answer
        expected.note(topic, int(answer.ext["queueOffset"]), body)


async def _verify(broker: Cluster, expected: Expectation) -> None:
    link = await Link.connect(broker.broker)
    for topic, end in expected.ends.items():
        answer = await link.call(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
        assert int(answer.ext["offset"]) == end, f"{topic}: {answer}"
        for one in await _consume(link, topic):
            assert one.body == expected.bodies[topic, one.queue_offset], f"{topic} {one.queue_offset}"
    link.close()


async def _consume(link: Link, topic: str) -> list[record.Record]:
    """Return the messages of a queue from the start. Every response before its end must move the consumer forward."""
    found: list[record.Record] = []
    offset = 0
    while True:
        ext = {
            "consumerGroup": "reader", "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        }  # fmt: skip
        answer = await link.call(RequestCode.PULL_MESSAGE, ext)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return found
        assert answer.code == ResponseCode.SUCCESS or answer.code in _MOVED, answer
        assert int(answer.ext["nextBeginOffset"]) > offset, answer
        found += record.decode_all(answer.body)
        offset = int(answer.ext["nextBeginOffset"])


def _flip_bits(directory: Path, rng: random.Random) -> None:
    """Change bits in the log.

    Not in the newest segment, which is perhaps empty, and not in the rare messages: if the last record of a queue is damaged
    before the first sync of the queue table, nothing tells how many messages the queue had.
    """
    for path in sorted(directory.glob("data/**/commitlog/[0-9]*"))[:-1]:
        data = bytearray(path.read_bytes())
        place = rng.randrange(SEGMENT // 2)
        if b"Rare" not in data[max(place - 300, 0) : place + 300]:
            data[place] ^= 1 << rng.randrange(8)
            path.write_bytes(data)


def _kill_while_it_starts(directory: Path, rng: random.Random) -> None:
    options = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    words = ["up", "--data", str(directory / "data"), "--namesrv-port", "0", "--broker-port", "0"]
    process = servers.Process([*servers.firearrow_command(), *words, *options], directory / "firearrow.log").start()
    time.sleep(rng.uniform(0.15, 0.7))  # the fault itself: the process lives for so long
    process.kill()
