"""The attacked server, an honest client that works beside the attacker, and the checks after an attack.

Nothing here depends on how fast the machine is: the honest client must make progress, counted in rounds, not in seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from firearrow.wire import fastjson, record
from firearrow.wire.codes import RequestCode, ResponseCode
from tests.conformance.servers import Cluster
from tests.support.raw_client import Link, make_topic, pull_all, send

PATIENCE_S = 120.0  # for anything that must happen, on however busy a machine
HONEST = "Honest"  # the topic of the honest client
TOPIC = "Target"  # a topic that the attacker may name
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"  # messages of an earlier test may reach its files late
GROUP = "reader"
VERSION = re.compile(rb'"(?:mappingD|d)ataVersion":\{[^}]*\}')
# Nothing is created automatically, so everything new was created by the attacker. Half messages that one test leaves undecided
# are not checked during another.
SETTINGS = {"autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false", "transactionTimeOut": "86400000"}


class HonestClient:
    """A client that sends and pulls in rounds and checks the order of the responses."""

    def __init__(self, link: Link) -> None:
        self.rounds = 0
        self._link = link
        self._sent = 0
        self._offset = 0
        self._progress = asyncio.Event()
        self._stopping = False
        self._task = asyncio.create_task(self._run())

    async def completes(self, rounds: int) -> None:
        """Wait until the client has completed so many more rounds. Fails if it cannot."""
        target = self.rounds + rounds
        async with asyncio.timeout(PATIENCE_S):
            while self.rounds < target and not self._task.done():
                self._progress.clear()
                await self._progress.wait()
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        self._stopping = True
        await self._task

    async def _run(self) -> None:
        try:
            while not self._stopping:
                if await self._send_and_pull():
                    self.rounds += 1
                    self._progress.set()
                await asyncio.sleep(0.005)
        finally:
            self._progress.set()

    async def _send_and_pull(self) -> bool:
        """Return False if the broker was too busy for all of the messages, which an overloaded machine may cause."""
        numbers = range(self._sent, self._sent + 4)
        self._sent += 4
        order: list[int] = []
        futures = [send(self._link, HONEST, 0, b"honest %d" % number, f"honest-{number}") for number in numbers]

        def answered(number: int, _: object) -> None:
            order.append(number)

        for number, future in zip(numbers, futures, strict=True):
            future.add_done_callback(partial(answered, number))
        answers = await asyncio.wait_for(asyncio.gather(*futures), PATIENCE_S)
        if any(answer.code == ResponseCode.SYSTEM_BUSY for answer in answers):
            return False
        assert {answer.code for answer in answers} == {0}, answers
        assert order == list(numbers), "the responses arrived in another order than the requests"
        self._offset = int(answers[-1].ext["queueOffset"])
        _, highest, records = await pull_all(self._link, HONEST, 0, self._offset)
        assert highest == self._offset + 1
        assert records[-1].body == b"honest %d" % numbers[-1]
        return True


@dataclass
class Attack:
    """An attack in progress."""

    cluster: Cluster
    honest: HonestClient
    peak_bytes: int = 0


@asynccontextmanager
async def under_attack(
    cluster: Cluster,
    *,
    memory_mb: int = 64,
    may_write: bool = False,
) -> AsyncIterator[Attack]:
    """Run the honest client beside the attack, then check that nothing was written, memory was bounded and the client made
    progress.

    `may_write` is for attacks in which some requests are valid by accident (a message to a topic that exists).
    """
    link = await Link.connect(cluster.broker)
    await prepare(link)
    before = await state(link, cluster)
    first_resident = resident_bytes(cluster)
    attack = Attack(cluster, HonestClient(link))
    watch = asyncio.create_task(_watch(attack))
    try:
        await attack.honest.completes(1)
        yield attack
        await attack.honest.completes(1)
    finally:
        await attack.honest.stop()
        watch.cancel()
    after = await state(link, cluster)
    assert cluster.processes[0].alive(), cluster.processes[0].output()[-3000:]
    assert differences(before.tables, after.tables) == []
    assert after.paths - before.paths - allowed_paths(cluster) == set(), "new files"
    assert before.paths - after.paths == set(), "files are missing"
    if not may_write:
        assert await foreign_records(link, before.log_end, after.log_end) == []
    grown_mb = (attack.peak_bytes - first_resident) / 2**20
    assert grown_mb < memory_mb, f"the server grew by {grown_mb:.0f} MB"
    link.close()


def differences(before: dict[int, bytes], after: dict[int, bytes]) -> list[str]:
    """Return the lines (or pieces of JSON) that only one of the two has."""
    found = []
    for code, old in before.items():
        # A write without a change still increments the version.
        pieces = [set(VERSION.sub(b"", body).replace(b"},", b"},\n").splitlines()) for body in (old, after[code])]
        found += [f"{RequestCode(code).name}: {piece!r}" for piece in sorted(pieces[0] ^ pieces[1])]
    return found


async def prepare(link: Link) -> None:
    """Create the topics and the group, once."""
    if (await link.call(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC})).code != 0:
        await make_topic(link, TOPIC, 4)
        await make_topic(link, HONEST, 1)
        group = fastjson.dumps({"groupName": GROUP})
        answer = await link.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
        assert answer.code == 0, answer
        # The first heartbeat of a group creates its retry topic.
        heartbeat = {"clientID": "reader-1", "consumerDataSet": [{"groupName": GROUP, "subscriptionDataSet": []}]}
        assert (await link.call(RequestCode.HEART_BEAT, {}, fastjson.dumps(heartbeat))).code == 0
        for topic in (TOPIC, HONEST):
            await send_first(link, topic)
            await pull_all(link, topic, 0, 0)


async def send_first(link: Link, topic: str) -> None:
    """Send a message, again while an overloaded machine makes the broker answer that it is busy."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await send(link, topic, 0, b"first", "first")).code == ResponseCode.SYSTEM_BUSY:
            pass
    assert answer.code == 0, answer


@dataclass
class State:
    """State that a request could have changed permanently."""

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
    """Return every path below the parent of the data directory, so that files outside it are noticed too.

    Temporary files are left out: they exist for the moment in which a table is replaced.
    """
    top = cluster.store.parent
    paths = (Path(folder, name) for folder, folders, names in os.walk(top) for name in (*folders, *names))
    return {str(path.relative_to(top)) for path in paths if path.suffix != ".tmp"}


def allowed_paths(cluster: Cluster) -> set[str]:
    """Return the store files that the honest client's traffic may create."""
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
    """Return the records of the log that are not the honest client's."""
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
