"""`firearrow bench`: the throughput and latency of this client against the brokers of a cluster.

The latency of a send is the time from the call to the acknowledgement. The latency of a consumed message is the time from its
store timestamp to the listener's call, by two clocks if the broker runs on another machine. CPU is that of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import click

from firearrow.cli.arguments import COUNT, DURATION, EARLIEST, GROUP, LATEST, TOPIC
from firearrow.cli.command import FAILURE, SUCCESS, Group, at_most_one, options
from firearrow.cli.messages.common import ClientArguments, client_options, run_client
from firearrow.cli.terminal import Output, StatusLine, plural
from firearrow.client.consumer.push_consumer import PushConsumer
from firearrow.client.consumer.queue_offsets import StartFrom
from firearrow.client.message import Message, ReceivedMessage, SendResult
from firearrow.client.producer.producer import Producer

DEFAULT_DURATION: Final = timedelta(seconds=10)
PERCENTILES: Final = (50, 90, 99, 99.9)
_SENDS_PER_CLOCK_READ: Final = 64
_BUCKETS: Final = 64 * 40


class Limit(NamedTuple):
    """The end of a measurement: a number of messages, or a duration."""

    messages: int | None
    duration: timedelta

    def is_reached(self, count: int, recorder: LatencyRecorder) -> bool:
        if self.messages is not None:
            return count >= self.messages
        return recorder.elapsed_s >= self.duration.total_seconds()


class BenchArguments(NamedTuple):
    """The values of the options of `bench send` itself."""

    topic: str
    group: str
    size: int
    in_flight: int
    batch: int
    keys: bool


bench = Group("bench")
bench_options = options(
    click.option("--topic", type=TOPIC, default="BenchmarkTest", show_default=True, help="Topic."),
    click.option("--duration", type=DURATION, help="Duration of the measurement.  [default: 10s]"),
    click.option("--messages", metavar="N", type=COUNT, help="Measure N messages instead of a duration."),
    click.option("--group", type=GROUP, default="benchmark", show_default=True, help="Group of the client."),
)


@bench.command("send", epilog="Example: firearrow bench send --size 1024 --duration 10s")
@bench_options
@click.option("--size", metavar="BYTES", type=COUNT, default=128, show_default=True, help="Size of a body.")
@click.option("--in-flight", metavar="N", type=COUNT, default=1000, show_default=True, help="Concurrent sends; 1: one by one.")
@click.option("--batch", metavar="N", type=COUNT, default=1, show_default=True, help="Messages per request.")
@click.option("--keys", is_flag=True, help="Give each message a key and a tag.")
@client_options
def bench_send(duration: timedelta | None, messages: int | None, **parameters: Any) -> int:
    """Send as fast as possible and print the rate, latency percentiles and CPU time."""
    shared, limit = ClientArguments.take(parameters), _limit(duration, messages)
    options = BenchArguments(**parameters)
    return run_client(lambda: _measure("sent", lambda recorder: _send(options, limit, shared, recorder), shared), shared)


@bench.command("consume", epilog="Example: firearrow bench consume --from earliest --messages 100000")
@bench_options
@click.option(
    "--from", "position", type=click.Choice((EARLIEST, LATEST)), default=LATEST, show_default=True, help="First message."
)
@click.option("--threads", is_flag=True, help="Consume in worker threads instead of on the event loop.")
@client_options
def bench_consume(
    duration: timedelta | None,
    messages: int | None,
    topic: str,
    group: str,
    position: StartFrom,
    threads: bool,
    **parameters: Any,
) -> int:
    """Consume as fast as possible and print the rate, latency percentiles and CPU time. Another process must send."""
    shared, limit = ClientArguments.take(parameters), _limit(duration, messages)

    def work(recorder: LatencyRecorder) -> Awaitable[None]:
        return _consume(topic, group, position, threads, limit, shared, recorder)

    return run_client(lambda: _measure("consumed", work, shared), shared)


def _limit(duration: timedelta | None, messages: int | None) -> Limit:
    at_most_one(duration=duration, messages=messages)
    return Limit(messages, duration or DEFAULT_DURATION)


async def _measure(verb: str, work: Callable[[LatencyRecorder], Awaitable[None]], shared: ClientArguments) -> int:
    recorder = LatencyRecorder()
    progress = asyncio.ensure_future(_show_progress(recorder))
    try:
        await work(recorder)
    finally:
        recorder.stop()
        progress.cancel()
        await asyncio.wait([progress])  # it removes its line before the summary is printed
    out = Output(shared.output)
    if out.for_people:
        for line in recorder.report(verb):
            out.text(line)
    else:
        out.item(recorder.figures(), "")
    return FAILURE if recorder.failed else SUCCESS


async def _send(options: BenchArguments, limit: Limit, shared: ClientArguments, recorder: LatencyRecorder) -> None:
    async with Producer(
        shared.namesrv,
        group=options.group,
        max_in_flight=options.in_flight,
        compress_over=1 << 30,
        **shared.keywords(),
    ) as producer:
        tag, keys = ("bench", "key") if options.keys else (None, ())
        message = Message(options.topic, os.urandom(options.size), tag, keys)
        await producer.send(message)  # so that the route and the connection exist before the clock starts
        recorder.start()
        if options.batch > 1:
            send = partial(producer.send_batch, [message] * options.batch)
            loops = max(1, min(options.in_flight // options.batch, 64))
            await asyncio.gather(*(_send_in_turn(send, options, limit, recorder) for _ in range(loops)))
        elif options.in_flight == 1:
            await _send_in_turn(partial(producer.send, message), options, limit, recorder)
        else:
            await _send_concurrently(producer, message, options, limit, recorder)


async def _send_concurrently(
    producer: Producer, message: Message, options: BenchArguments, limit: Limit, recorder: LatencyRecorder
) -> None:
    clock, done = time.perf_counter, partial(_record_send, recorder, len(message.body))
    started = 0
    while not limit.is_reached(started, recorder):
        await producer.wait_for_capacity()
        portion = min(_SENDS_PER_CLOCK_READ, options.in_flight)
        if limit.messages is not None:
            portion = min(portion, limit.messages - started)
        for _ in range(portion):
            producer.send_nowait(message).add_done_callback(partial(done, clock()))
        started += portion
        await asyncio.sleep(0)
    while recorder.count + recorder.failed < started:  # noqa: ASYNC110 (an event would cost time per message)
        await asyncio.sleep(0.001)


async def _send_in_turn(
    send: Callable[[], Awaitable[object]], options: BenchArguments, limit: Limit, recorder: LatencyRecorder
) -> None:
    """Send again whenever the last send is acknowledged."""
    clock = time.perf_counter
    while not limit.is_reached(recorder.count + recorder.failed, recorder):
        began = clock()
        try:
            await send()
        except Exception as error:  # noqa: BLE001 (counted and reported)
            recorder.failure(error)
        else:
            recorder.add(clock() - began, options.size, options.batch)


def _record_send(recorder: LatencyRecorder, size: int, began: float, future: asyncio.Future[SendResult]) -> None:
    error = future.exception()
    if error is None:
        recorder.add(time.perf_counter() - began, size)
    else:
        recorder.failure(error)


async def _consume(
    topic: str, group: str, position: StartFrom, threads: bool, limit: Limit, shared: ClientArguments, recorder: LatencyRecorder
) -> None:
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()

    def record(message: ReceivedMessage) -> None:
        recorder.add(max(0.0, time.time() - message.store_ms / 1000), len(message.body))
        if limit.messages is not None and recorder.count >= limit.messages:
            loop.call_soon_threadsafe(enough.set)

    async def record_on_loop(message: ReceivedMessage) -> None:
        record(message)

    consumer = PushConsumer(
        shared.namesrv,
        group=group,
        subscribe={topic: "*"},
        listener=record if threads else record_on_loop,
        start_from=position,
        **shared.keywords(),
    )
    async with consumer:
        recorder.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if limit.messages is not None else limit.duration.total_seconds()):
                await enough.wait()
        recorder.stop()


async def _show_progress(recorder: LatencyRecorder) -> None:
    """Show the totals each second."""
    with contextlib.closing(StatusLine()) as line:
        while True:
            await asyncio.sleep(1)
            line.show(recorder.progress_text())


class LatencyRecorder:
    """Thread-safe counts of messages, bytes, failures and latencies, without storing every latency.

    Latencies are counted in buckets, 64 per power of two, so that a percentile is off by less than 2 %. The bucket of t
    microseconds is t below 128; above, it consists of the number of doublings and the top seven bits.
    """

    def __init__(self) -> None:
        self.count = 0
        self.failed = 0
        self.bytes = 0
        self.max_us = 0
        self.first_failure = ""
        self._buckets = [0] * _BUCKETS
        self._lock = threading.Lock()
        self._began = self._ended = 0.0
        self._cpu_began = self._cpu_s = 0.0
        self._last = (0, 0.0)

    def start(self) -> None:
        self._began = time.perf_counter()
        self._cpu_began = _cpu_s()
        self._last = (0, self._began)

    def stop(self) -> None:
        if not self._ended:
            self._ended = time.perf_counter()
            self._cpu_s = _cpu_s() - self._cpu_began

    def add(self, latency_s: float, size: int, messages: int = 1) -> None:
        us = int(latency_s * 1_000_000)
        doublings = us.bit_length() - 7
        bucket = us if doublings <= 0 else (doublings << 6) + (us >> doublings)
        with self._lock:
            self.count += messages
            self.bytes += size * messages
            self._buckets[bucket if bucket < _BUCKETS else -1] += messages
            if us > self.max_us:
                self.max_us = us

    def failure(self, error: BaseException) -> None:
        with self._lock:
            self.failed += 1
            self.first_failure = self.first_failure or f"{type(error).__name__}: {error}"

    @property
    def elapsed_s(self) -> float:
        return (self._ended or time.perf_counter()) - self._began if self._began else 0.0

    def percentile_ms(self, percent: float) -> float:
        wanted = self.count * percent / 100
        seen = 0
        for bucket, messages in enumerate(self._buckets):
            seen += messages
            if messages and seen >= wanted:
                return min(_upper_us(bucket), self.max_us) / 1000
        return 0.0

    def progress_text(self) -> str:
        """Return the totals and the rate since the last call."""
        now, count = time.perf_counter(), self.count
        (before, at), self._last = self._last, (count, now)
        rate = (count - before) / (now - at) if at and now > at else 0.0
        return f"{self.elapsed_s:6.1f} s {plural(count, 'message'):>21} {rate:>10,.0f}/s, p99 {self.percentile_ms(99):.2f} ms" + (
            f", {self.failed:,} failed" if self.failed else ""
        )

    def figures(self) -> dict[str, Any]:
        """Return the summary for programs."""
        seconds = max(self.elapsed_s, 1e-9)
        return {
            "messages": self.count,
            "failed": self.failed,
            "seconds": round(seconds, 3),
            "messages_per_s": round(self.count / seconds, 1),
            "mb_per_s": round(self.bytes / seconds / 1e6, 3),
            "latency_ms": {f"p{percent:g}": self.percentile_ms(percent) for percent in PERCENTILES} | {"max": self.max_us / 1000},
            "cpu_us_per_message": round(self._cpu_s / self.count * 1e6, 2) if self.count else None,
        }

    def report(self, verb: str) -> list[str]:
        """Return the lines of the summary for people."""
        figures = self.figures()
        lines = [
            f"{verb} {plural(self.count, 'message')} in {figures['seconds']:.2f} s: {figures['messages_per_s']:,.0f} per second, "
            f"{figures['mb_per_s']:,.1f} MB/s, {self.failed:,} failed",
            "latency ms: " + "  ".join(f"{name} {value:.2f}" for name, value in figures["latency_ms"].items()),
        ]
        if self.count:
            lines.append(f"CPU: {figures['cpu_us_per_message']:.1f} us per message")
        if self.first_failure:
            lines.append(f"first failure: {self.first_failure}")
        return lines


def _upper_us(bucket: int) -> int:
    """Return the longest latency of a bucket."""
    if bucket < 128:
        return bucket
    doublings = (bucket >> 6) - 1
    return ((bucket - (doublings << 6) + 1) << doublings) - 1


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
