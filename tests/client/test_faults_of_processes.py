"""Faults of real processes under load: a broker killed and started again, one that stands still, a name server that is gone,
connections that are cut inside a frame.

What must hold through all of it
- no acknowledged message is lost: it is stored, once unless its send was uncertain when something broke, and it is consumed;
- no listener call is lost: every stored message has one. A call is repeated only if something broke after the first.

FIREARROW_FAULT_ROUNDS says how often each fault happens in a test: 2 in an ordinary run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from firearrow import aio
from firearrow.client.errors import FirearrowError
from firearrow.client.message import Message, MessageQueue, ReceivedMessage, SendResult
from tests.client import frame_proxy
from tests.client.frame_proxy import FrameProxy
from tests.conformance import rawcall, servers
from tests.support.ports import reserve_port

ROUNDS = int(os.environ.get("FIREARROW_FAULT_ROUNDS", "2"))
TOPIC, QUEUES = "Faults", 4
IN_FLIGHT = 32
PATIENCE_S = 60.0
SETTINGS = {"flushDiskType": "ASYNC_FLUSH", "defaultTopicQueueNums": str(QUEUES), "bindAddress": "127.0.0.1"}
CALM_S = 0.3  # of load between two faults

Place = tuple[MessageQueue, int]
Fault = Callable[["Stage"], Awaitable[None]]


class Servers:
    """A name server and a broker, each a process."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.name_server, self.name_server_address = servers.start_firearrow_namesrv(directory)
        self.port = reserve_port(-2, 1)
        self.broker, _ = servers.start_firearrow_broker(directory, self.name_server_address, SETTINGS | settings, self.port)

    async def start_broker(self) -> None:
        """Again, on what it left behind."""
        self.broker.start()
        await asyncio.to_thread(self.broker.wait_until, self._answers, "the broker is back")

    async def start_name_server(self) -> None:
        self.name_server.start()
        await asyncio.to_thread(self.name_server.wait_until, self._knows_broker, "the name server is back", PATIENCE_S)

    def end(self) -> None:
        self.broker.kill()
        self.name_server.kill()

    def _answers(self) -> bool:
        try:
            rawcall.call(f"127.0.0.1:{self.port}", 28)
        except OSError:
            return False
        return True

    def _knows_broker(self) -> bool:
        try:
            answer, body = rawcall.call(self.name_server_address, 106)
        except OSError:
            return False
        return answer["code"] == 0 and f":{self.port}".encode() in body


class Load:
    """Sends until it is stopped, IN_FLIGHT at a time, and records the outcome of each message."""

    def __init__(self, producer: aio.Producer) -> None:
        self.acknowledged: dict[bytes, Place] = {}
        self.refused: dict[bytes, BaseException] = {}
        self.under_way: set[bytes] = set()
        self.uncertain: set[bytes] = set()  # under way at a moment when something was broken: may be stored more than once
        self._producer = producer
        self._numbers = iter(range(10**9))
        self._stopped = False
        self._tasks = [asyncio.ensure_future(self._send()) for _ in range(IN_FLIGHT)]
        self._broken = False

    @asynccontextmanager
    async def broken(self) -> AsyncIterator[None]:
        """While something is, every send under way, or begun meanwhile, is uncertain."""
        self._broken = True
        self.uncertain |= self.under_way
        try:
            yield
        finally:
            self._broken = False

    async def more(self, count: int) -> None:
        """Returns when so many more were acknowledged."""
        goal = len(self.acknowledged) + count
        while len(self.acknowledged) < goal:
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self._stopped = True
        await asyncio.gather(*self._tasks)

    async def _send(self) -> None:
        while not self._stopped:
            body = b"%d" % next(self._numbers)
            self.under_way.add(body)
            if self._broken:
                self.uncertain.add(body)
            try:
                result: SendResult = await self._producer.send(Message(TOPIC, body))
            except FirearrowError as error:
                self.refused[body] = error
            else:
                self.acknowledged[body] = (result.queue, result.queue_offset)
            self.under_way.discard(body)
            await asyncio.sleep(0.01)


class Stage:
    """The targets of faults, and the observations."""

    def __init__(self, processes: Servers, proxy: FrameProxy | None, load: Load) -> None:
        self.processes = processes
        self.proxy = proxy
        self.load = load
        self.broke: list[float] = []  # when

    @asynccontextmanager
    async def breaking(self) -> AsyncIterator[None]:
        async with self.load.broken():
            self.broke.append(time.monotonic())
            yield
            self.broke.append(time.monotonic())


async def killed(stage: Stage) -> None:
    async with stage.breaking():
        stage.processes.broker.kill()
        await asyncio.sleep(0.1)
        await stage.processes.start_broker()


async def stands_still(stage: Stage, seconds: float) -> None:
    process = stage.processes.broker.popen
    assert process is not None
    async with stage.breaking():
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        process.send_signal(signal.SIGCONT)


async def cut_in_a_frame(stage: Stage, direction: str) -> None:
    assert stage.proxy is not None
    async with stage.breaking():
        await stage.proxy.cut(direction)


async def no_name_server(stage: Stage) -> None:
    """Nothing may break: not a send is uncertain, not a call repeated."""
    stage.processes.name_server.kill()
    await stage.load.more(200)
    await stage.processes.start_name_server()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_a_broker_is_killed_and_started_again(tmp_path: Path, orderly: bool) -> None:
    asyncio.run(_story(tmp_path, [killed], orderly=orderly))


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_a_connection_is_cut_inside_a_frame(tmp_path: Path) -> None:
    faults = [partial(cut_in_a_frame, direction="to broker"), partial(cut_in_a_frame, direction="to client")]
    asyncio.run(_story(tmp_path, faults, through_proxy=True))


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_broker_is_stopped_for_longer_than_the_send_timeout(tmp_path: Path) -> None:
    asyncio.run(_story(tmp_path, [partial(stands_still, seconds=0.4), partial(stands_still, seconds=2.2)], send_timeout=1.5))


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_a_name_server_is_gone(tmp_path: Path) -> None:
    asyncio.run(_story(tmp_path, [no_name_server]))


async def _story(
    directory: Path, faults: Sequence[Fault], *, orderly: bool = False, through_proxy: bool = False, send_timeout: float = 5
) -> None:
    processes = Servers(directory, {"brokerIP1": frame_proxy.HOST} if through_proxy else {})
    try:
        if through_proxy:
            async with FrameProxy(processes.port) as proxy:
                await _act(processes, proxy, faults, orderly, send_timeout)
        else:
            await _act(processes, None, faults, orderly, send_timeout)
    finally:
        processes.end()


async def _act(processes: Servers, proxy: FrameProxy | None, faults: Sequence[Fault], orderly: bool, send_timeout: float) -> None:
    calls: list[tuple[Place, bytes, float]] = []

    def listen(message: ReceivedMessage) -> None:
        calls.append(((message.queue, message.queue_offset), message.body, time.monotonic()))

    at = processes.name_server_address
    async with aio.Producer(at, group="faults", send_timeout=send_timeout, route_interval=0.5) as producer:
        await producer.send(Message(TOPIC, b"first"))  # so that the topic is there
        consumer = aio.PushConsumer(
            at,
            group="faults",
            subscribe={TOPIC: "*"},
            listener=listen,
            start_from="earliest",
            orderly=orderly,
            route_interval=0.5,
        )
        async with consumer:
            load = Load(producer)
            stage = Stage(processes, proxy, load)
            for fault in [*faults] * ROUNDS:
                await load.more(100)
                await asyncio.sleep(CALM_S)
                await asyncio.wait_for(fault(stage), PATIENCE_S)
            await load.more(100)
            await load.stop()
            stored = await _stored(at)
            await _until_all_called(set(stored), calls)
    print(f"{len(load.acknowledged)} acknowledged, {len(load.refused)} refused, {len(stored)} stored, {len(calls)} calls")
    _check_stored(load, stored)
    _check_calls(calls, stored, stage.broke, orderly=orderly)


async def _stored(name_server: str) -> dict[Place, bytes]:
    found: dict[Place, bytes] = {}
    async with (
        asyncio.timeout(PATIENCE_S),
        aio.PullConsumer(name_server, group="faults-look", topics=[TOPIC], start_from="earliest") as consumer,
    ):
        while not consumer.assignment() or any((await consumer.lag()).values()):
            for message in await consumer.poll(timeout=0.2):
                found[message.queue, message.queue_offset] = message.body
    return found


async def _until_all_called(places: set[Place], calls: list[tuple[Place, bytes, float]]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while missing := places - {place for place, _, _ in calls}:
        assert time.monotonic() < deadline, f"the listener was never called for {len(missing)} of {len(places)}: {[*missing][:5]}"
        await asyncio.sleep(0.05)


def _check_stored(load: Load, stored: dict[Place, bytes]) -> None:
    assert len(load.acknowledged) > 200 * ROUNDS
    for body, place in load.acknowledged.items():
        assert stored.get(place) == body, f"{body!r} was acknowledged at {place}; there is {stored.get(place)!r}"
    times: dict[bytes, int] = {}
    for body in stored.values():
        times[body] = times.get(body, 0) + 1
    twice = {body for body, count in times.items() if count > 1}
    assert twice <= load.uncertain, f"stored more than once, although nothing was broken: {[*(twice - load.uncertain)][:5]}"
    for body, error in load.refused.items():
        assert body in load.uncertain, f"{body!r} was refused, although nothing was broken: {error}"


def _check_calls(
    calls: list[tuple[Place, bytes, float]], stored: dict[Place, bytes], broke: list[float], *, orderly: bool
) -> None:
    first: dict[Place, float] = {}
    offsets: dict[MessageQueue, list[int]] = {}
    for place, body, when in calls:
        assert stored.get(place) == body, f"the listener was given {body!r} of {place}, which is not stored"
        before = first.setdefault(place, when)
        assert before == when or any(before <= moment <= when for moment in broke), f"{place} came twice, with nothing broken"
        offsets.setdefault(place[0], []).append(place[1])
    if orderly:
        for queue, seen in offsets.items():
            assert all(after - before <= 1 for before, after in pairwise(seen)), f"{queue}: a message was passed over"
