"""The server under attack, an honest client beside the attacker, and the look at both afterwards."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from firearrow.wire import fastjson, record
from firearrow.wire.codes import RequestCode
from tests.conformance.servers import Cluster
from tests.crash.rawclient import Link, make_topic, pull_all, send

HONEST = "Honest"  # the topic of the honest client
TOPIC = "Target"  # one that the attacker may name
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"  # what an earlier test left there may reach its file now
GROUP = "reader"
VERSION = re.compile(rb'"(?:mappingD|d)ataVersion":\{[^}]*\}')
# Nothing comes into being by itself: whatever is new afterwards, the attacker made it.
# A half message that a test leaves undecided is not to be stored again during another test.
SETTINGS = {"autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false", "transactionTimeOut": "86400000"}


@dataclass
class Neighbour:
    """An honest client that sends and pulls all the time and notes how long it waited and in which order answers came."""

    link: Link
    waits_s: list[float] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sent: int = 0
    _end: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        while not self._end.is_set():
            began = time.monotonic()
            numbers = range(self.sent, self.sent + 4)
            self.sent += 4
            order: list[int] = []
            futures = [send(self.link, HONEST, 0, b"honest %d" % number, f"honest-{number}") for number in numbers]
            for number, future in zip(numbers, futures, strict=True):
                future.add_done_callback(lambda _, number=number, order=order: order.append(number))
            for answer in await asyncio.wait_for(asyncio.gather(*futures), 20):
                assert answer.code == 0, answer
                self.offsets.append(int(answer.ext["queueOffset"]))
            assert order == list(numbers), "the answers came in another order than the requests"
            _, highest, records = await pull_all(self.link, HONEST, 0, self.offsets[-1])
            assert highest == self.offsets[-1] + 1
            assert records[-1].body == b"honest %d" % numbers[-1]
            self.waits_s.append(time.monotonic() - began)
            await asyncio.sleep(0.005)

    def finish(self) -> None:
        self._end.set()


@dataclass
class Attack:
    """The frame around one attack; `neighbour` and the peak of memory can be looked at while it runs."""

    cluster: Cluster
    neighbour: Neighbour
    peak_bytes: int = 0


@asynccontextmanager
async def under_attack(
    cluster: Cluster,
    *,
    memory_mb: int = 64,
    wait_s: float = 2.0,
    may_write: bool = False,
) -> AsyncIterator[Attack]:
    """Runs the honest client beside the attack; then: nothing written, memory bounded, nobody disturbed.

    `may_write` is for attacks in which some requests are right by accident (a message to a topic that exists).
    """
    link = await Link.connect(cluster.broker)
    await prepare(link)
    before = await state(link, cluster)
    first_resident = resident_bytes(cluster)
    attack = Attack(cluster, Neighbour(link))
    honest = asyncio.create_task(attack.neighbour.run())
    watch = asyncio.create_task(_watch(attack))
    await asyncio.sleep(0.05)
    try:
        yield attack
    finally:
        attack.neighbour.finish()
        await honest
        watch.cancel()
    after = await state(link, cluster)
    assert cluster.processes[0].alive(), cluster.processes[0].output()[-3000:]
    assert differences(before.tables, after.tables) == []
    assert after.paths - before.paths - allowed_paths(cluster) == set(), "new files"
    assert before.paths - after.paths == set(), "files are gone"
    if not may_write:
        assert await foreign_records(link, before.log_end, after.log_end) == []
    waits = sorted(attack.neighbour.waits_s)
    assert waits, "the honest client got nowhere"
    assert waits[-1] < wait_s, f"the honest client waited {waits[-1]:.2f} s"
    grown_mb = (attack.peak_bytes - first_resident) / 2**20
    assert grown_mb < memory_mb, f"the server grew by {grown_mb:.0f} MB"
    link.close()


def differences(before: dict[int, bytes], after: dict[int, bytes]) -> list[str]:
    """The lines (or pieces of JSON) that only one of the two has."""
    told = []
    for code, old in before.items():
        # A change that changes nothing still counts up the version.
        pieces = [set(VERSION.sub(b"", body).replace(b"},", b"},\n").splitlines()) for body in (old, after[code])]
        told += [f"{RequestCode(code).name}: {piece!r}" for piece in sorted(pieces[0] ^ pieces[1])]
    return told


async def prepare(link: Link) -> None:
    """The topics and the group; made once."""
    if (await link.call(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC})).code != 0:
        await make_topic(link, TOPIC, 4)
        await make_topic(link, HONEST, 1)
        group = fastjson.dumps({"groupName": GROUP})
        answer = await link.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
        assert answer.code == 0, answer
        # The first heartbeat of a group makes its retry topic.
        heartbeat = {"clientID": "reader-1", "consumerDataSet": [{"groupName": GROUP, "subscriptionDataSet": []}]}
        assert (await link.call(RequestCode.HEART_BEAT, {}, fastjson.dumps(heartbeat))).code == 0
        for topic in (TOPIC, HONEST):
            assert (await send(link, topic, 0, b"first", "first")).code == 0
            await pull_all(link, topic, 0, 0)


@dataclass
class State:
    """What a request could have changed for good."""

    tables: dict[int, bytes]
    paths: set[str]
    log_end: int


async def state(link: Link, cluster: Cluster) -> State:
    tables = {}
    for code in (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_BROKER_CONFIG):
        answer = await link.call(code, {})
        assert answer.code == 0, answer
        tables[int(code)] = answer.body
    answer = await link.call(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    values = fastjson.loads(answer.body)["table"]
    return State(tables, tree(cluster), int(values["commitLogMaxOffset"]))


def tree(cluster: Cluster) -> set[str]:
    """Every path from the directory above the data on, so that a step outside shows too."""
    top = cluster.store.parent
    return {str(Path(folder, name).relative_to(top)) for folder, folders, names in os.walk(top) for name in (*folders, *names)}


def allowed_paths(cluster: Cluster) -> set[str]:
    """What the honest client's own doing may add: files of the store that come with time."""
    top = cluster.store.parent
    data = cluster.store.relative_to(top)
    now = tree(cluster)
    config = {"consumerOffset.json", "consumerOffset.json.bak", "topics.json.bak", "subscriptionGroup.json.bak"}
    config |= {"delayOffset.json", "consumerFilter.json", "messageRequestMode.json"}
    grown = {
        path
        for path in now
        if path.startswith((f"{data}/index/", *(f"{data}/consumequeue/{topic}" for topic in (HONEST, TOPIC, HALF))))
    }
    base = {f"{data}/checkpoint", f"{data}/consumequeue", f"{data}/index", f"{data}/config"}
    return grown | base | {f"{data}/config/{name}" for name in config} | {path for path in now if path.endswith(".log")}


async def foreign_records(link: Link, begin: int, end: int) -> list[str]:
    """Walks the log record by record; whatever is not the honest client's."""
    found = []
    offset = begin
    while offset < end:
        answer = await link.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
        assert answer.code == 0, f"at {offset}: {answer}"
        one = record.decode(answer.body)
        if one.topic != HONEST or not one.body.startswith(b"honest "):
            found.append(f"{one.topic}/{one.queue_id}: {one.body[:40]!r} {hashlib.sha256(one.body).hexdigest()[:8]}")
        offset += one.total_size
    return found


def resident_bytes(cluster: Cluster) -> int:
    process = cluster.processes[0].popen
    assert process is not None
    fields = Path(f"/proc/{process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


async def _watch(attack: Attack) -> None:
    while True:
        attack.peak_bytes = max(attack.peak_bytes, resident_bytes(attack.cluster))
        await asyncio.sleep(0.02)
