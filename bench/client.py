"""Our Python client compared with Apache's Java client, on our broker with ASYNC_FLUSH, in alternating order.

    send   Apache's benchmark Producer with 64 threads; ours pipelined on one thread (bench/client_load.py). Bodies of 128 bytes
    push   Apache's benchmark Consumer and our push consumer, each on the same backlog, with equivalent listeners
    sync   one thread that sends and waits for the reply

Counts are read at the broker: the ends of the queues, and the offsets that consumers commit with their pulls. Both clients are
therefore measured in the same way, for the same time, after the same warm-up. The CPU time is that of the client's process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench import apache_client
from bench.load import run_load
from bench.loads import ASYNC
from bench.process import BenchError, Process
from bench.report import Check, check_table
from bench.session import HERE, Session
from bench.targets import Running
from firearrow.net.channel import Channel
from firearrow.wire.codes import RequestCode, ResponseCode

SEND_RATE_AT_LEAST = 1.0
SEND_CPU_AT_MOST = 0.7
PUSH_RATE_AT_LEAST = 1.0
SYNC_P50_AT_MOST = 1.2

SIZE = 128
THREADS = 64
QUEUES = 4
BACKLOG_MESSAGES = 1_600_000
BACKLOG_QUICK_MESSAGES = 800_000
WARM_UP_S = 4.0  # from the first message; a JVM compiles its hot paths meanwhile
WARM_UP_QUICK_S = 2.5
BEGIN_TIMEOUT_S = 60.0
LOOK_S = 0.02
KINDS = ("send", "push", "sync")
CLIENTS = ("Java", "Python")


@dataclass(frozen=True)
class Figures:
    """Results of one client in one round."""

    messages: int
    msgs_per_s: float
    cpu_us_per_msg: float
    p50_us: float = 0.0
    p99_us: float = 0.0


def run(session: Session) -> bool:
    kinds = [kind for kind in KINDS if not session.only or any(text in kind for text in session.only)]
    if not kinds:
        raise BenchError(f"nothing has {' or '.join(session.only)} in its name; the names: {', '.join(KINDS)}")
    session.say("preparing Apache's clients")
    apache_client.prepare()
    results: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    with session.store() as store, session.started(session.ours, store, {"flushDiskType": ASYNC}) as running:
        bench = _Bench(session, running, store)
        if "push" in kinds:
            session.say(f"a backlog of {bench.backlog:,} messages")
            shape = {"size": SIZE, "queues": QUEUES, "conns": 4, "messages": bench.backlog}
            run_load(running, "batch", topic="bench-backlog", seconds=0, warm=0, **shape)
        for number in range(session.rounds):
            for kind in kinds:
                for client in CLIENTS if number % 2 == 0 else reversed(CLIENTS):
                    os.sync()
                    figures = bench.measure(kind, client, number)
                    results[kind, client].append(figures)
                    session.say(f"round {number + 1} of {session.rounds}: {kind}, {client}: {_line(figures)}")
        running.kill()  # the store is not needed afterwards
    checks = [check for kind in kinds for check in checks_of(kind, results[kind, "Python"], results[kind, "Java"])]
    print(check_table(checks))
    rows = [{"kind": k, "client": c, "rounds": [asdict(figures) for figures in rounds]} for (k, c), rounds in results.items()]
    session.save("client", rows)
    return not any(check.missed for check in checks)


class _Bench:
    def __init__(self, session: Session, running: Running, home: Path) -> None:
        self.backlog = BACKLOG_QUICK_MESSAGES if session.quick else BACKLOG_MESSAGES
        self._seconds = session.seconds
        self._warm_s = WARM_UP_QUICK_S if session.quick else WARM_UP_S
        self._broker = running
        self._home = home
        self._name_server = f"127.0.0.1:{running.port + 2}"

    def measure(self, kind: str, client: str, number: int) -> Figures:
        name = f"bench-{kind}-{client}-{number}"
        log = self._home / f"{name}.out"
        if kind == "sync":
            return self._sync(self._command(kind, client, name), log)
        if kind == "push":
            asyncio.run(self._begin_at_zero("bench-backlog", name))
        process = Process(self._command(kind, client, name), log, {"PYTHONPATH": str(HERE.parent)})
        try:
            return asyncio.run(self._observe_send(process, name) if kind == "send" else self._observe_push(process, name))
        finally:
            process.kill()

    def _command(self, kind: str, client: str, name: str) -> list[str]:
        server, warm_s, seconds = self._name_server, self._warm_s, self._seconds
        if client == "Java":
            if kind == "send":
                return apache_client.producer(server, name, SIZE, THREADS, self._home)
            if kind == "push":
                return apache_client.consumer(server, "bench-backlog", name, self._home)
            return apache_client.sync_send(server, name, SIZE, warm_s, seconds, self._home)
        ours = [sys.executable, "-m", "bench.client_load", kind if kind != "push" else "consume", server]
        words = {"send": [name, str(SIZE)], "push": ["bench-backlog", name], "sync": [name, str(SIZE), str(warm_s), str(seconds)]}
        return ours + words[kind]

    async def _observe_send(self, process: Process, topic: str) -> Figures:
        channel = await Channel.connect(f"127.0.0.1:{self._broker.port}")

        async def stored() -> int:
            asked = ({"topic": topic, "queueId": str(queue)} for queue in range(QUEUES))
            return await _sum_of_offsets(channel, RequestCode.GET_MAX_OFFSET, asked)

        return await observe(process, stored, self._warm_s, self._seconds, None)

    async def _observe_push(self, process: Process, group: str) -> Figures:
        channel = await Channel.connect(f"127.0.0.1:{self._broker.port}")

        async def consumed() -> int:
            asked = ({"consumerGroup": group, "topic": "bench-backlog", "queueId": str(queue)} for queue in range(QUEUES))
            return await _sum_of_offsets(channel, RequestCode.QUERY_CONSUMER_OFFSET, asked)

        return await observe(process, consumed, self._warm_s, self._seconds, self.backlog)

    async def _begin_at_zero(self, topic: str, group: str) -> None:
        """Commit the first offsets for a group. The start of a new group would depend on client and broker settings."""
        channel = await Channel.connect(f"127.0.0.1:{self._broker.port}")
        body = json.dumps({"groupName": group, "consumeEnable": True}).encode()
        answers = [await channel.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)]
        for queue in range(QUEUES):
            ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": "0"}
            answers.append(await channel.request(RequestCode.UPDATE_CONSUMER_OFFSET, ext))
        for answer in answers:
            if answer.code != ResponseCode.SUCCESS:
                raise BenchError(f"the broker does not let {group} begin at the first message: {answer.remark}")
        await channel.close()

    def _sync(self, command: list[str], log: Path) -> Figures:
        process = Process(command, log, {"PYTHONPATH": str(HERE.parent)})
        try:
            patience_s = BEGIN_TIMEOUT_S + self._warm_s + self._seconds
            if process.wait(patience_s) != 0:
                raise BenchError(f"{' '.join(command)} failed:\n{process.tail()}")
        finally:
            process.kill()
        found = json.loads(process.tail(1))
        return Figures(found["messages"], found["messages"] / self._seconds, 0.0, found["p50_us"], found["p99_us"])


async def _sum_of_offsets(channel: Channel, code: int, requests: Iterable[Mapping[str, str]]) -> int:
    total = 0
    for ext in requests:
        answer = await channel.request(code, ext)
        total += int(answer.ext.get("offset", 0)) if answer.code == ResponseCode.SUCCESS else 0
    return total


async def observe(
    process: Process, progress: Callable[[], Awaitable[int]], warm_s: float, seconds: float, total: int | None
) -> Figures:
    """Measure from `warm_s` after the first message, for a time or until nearly all of `total` are processed."""
    enough = None if total is None else total * 0.95
    deadline = time.monotonic() + BEGIN_TIMEOUT_S
    while not await progress():
        process.check_alive()
        if time.monotonic() > deadline:
            raise BenchError(
                f"{process.name} did nothing within {BEGIN_TIMEOUT_S:.0f} s; the end of its output:\n{process.tail()}"
            )
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(warm_s)
    first, first_cpu_s, began = await progress(), process.cpu_s(), time.monotonic()
    while True:
        await asyncio.sleep(LOOK_S)
        last, cpu_s, now = await progress(), process.cpu_s(), time.monotonic()
        if now - began >= seconds or (enough is not None and last >= enough):
            break
    done = last - first
    if done <= 0 or now - began < seconds / 4:
        raise BenchError(f"{process.name} was through after {now - began:.1f} s: too little to measure; was {first:,} of {total}")
    return Figures(done, done / (now - began), (cpu_s - first_cpu_s) / done * 1e6)


def checks_of(kind: str, ours: list[Figures], java: list[Figures]) -> list[Check]:
    def medians(name: str) -> tuple[float, float]:
        return median(getattr(figures, name) for figures in ours), median(getattr(figures, name) for figures in java)

    if kind == "sync":
        p50, java_p50 = medians("p50_us")
        p99, java_p99 = medians("p99_us")
        return [
            Check("sync send: Python p50", p50, "us"),
            Check("sync send: Java p50", java_p50, "us"),
            Check("sync send: p50, Python by Java", p50 / java_p50, "x", SYNC_P50_AT_MOST),
            Check("sync send: p99, Python by Java", p99 / java_p99, "x"),
        ]
    rate, java_rate = medians("msgs_per_s")
    cpu_us, java_cpu_us = medians("cpu_us_per_msg")
    return [
        Check(f"{kind}: Python", rate, "msgs/s"),
        Check(f"{kind}: Java", java_rate, "msgs/s"),
        Check(
            f"{kind}: rate, Python by Java",
            rate / java_rate,
            "x",
            SEND_RATE_AT_LEAST if kind == "send" else PUSH_RATE_AT_LEAST,
            at_least=True,
        ),
        Check(f"{kind}: Python, CPU of the client", cpu_us, "us/msg"),
        Check(f"{kind}: Java, CPU of the client", java_cpu_us, "us/msg"),
        Check(f"{kind}: CPU, Python by Java", cpu_us / java_cpu_us, "x", SEND_CPU_AT_MOST if kind == "send" else None),
    ]


def _line(figures: Figures) -> str:
    if figures.p50_us:
        return f"p50 {figures.p50_us:.0f} us, p99 {figures.p99_us:.0f} us"
    return f"{figures.msgs_per_s:,.0f} msgs/s, {figures.cpu_us_per_msg:.1f} us"
