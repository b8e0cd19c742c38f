"""`firearrow bench`: how fast this client sends to, or consumes from, the brokers it is given.

The latency of a send is from the call to the answer; that of a consumption, from the moment the broker stored the message to the
listener's call, by two clocks if those are two machines. CPU is that of this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from functools import partial

from firearrow.cli.messages.common import client_keywords
from firearrow.cli.messages.consume import POSITIONS
from firearrow.cli.messages.tally import LatencyRecorder
from firearrow.client.consumer.push_consumer import PushConsumer
from firearrow.client.message import Message, ReceivedMessage, SendResult
from firearrow.client.producer.producer import Producer

PORTION = 64  # sends between two looks at the clock


async def run(options: argparse.Namespace) -> int:
    tally = LatencyRecorder()
    live = asyncio.ensure_future(_live(tally))
    try:
        await (_send(options, tally) if options.what == "send" else _consume(options, tally))
    finally:
        live.cancel()
        tally.stop()
    print(json.dumps(tally.figures()) if options.json else tally.report("sent" if options.what == "send" else "consumed"))
    return 1 if tally.failed else 0


async def _send(options: argparse.Namespace, tally: LatencyRecorder) -> None:
    async with Producer(
        options.name_server,
        group=options.group,
        max_in_flight=options.in_flight,
        compress_over=1 << 30,
        **client_keywords(options),
    ) as producer:
        message = Message(
            options.topic, os.urandom(options.size), "bench" if options.keys else None, "key" if options.keys else ()
        )
        await producer.send(message)  # the route is known and the connection open before the clock runs
        tally.start()
        if options.batch > 1:
            await _send_batches(producer, message, options, tally)
        elif options.in_flight == 1:
            await _send_in_turn(producer, message, options, tally)
        else:
            await _send_many(producer, message, options, tally)


async def _send_many(producer: Producer, message: Message, options: argparse.Namespace, tally: LatencyRecorder) -> None:
    clock, done = time.perf_counter, partial(_sent, tally, len(message.body))
    started = 0
    while not _over(started, options, tally):
        await producer.wait_for_capacity()
        portion = min(PORTION, options.in_flight)
        if options.messages is not None:
            portion = min(portion, options.messages - started)
        for _ in range(portion):
            producer.send_nowait(message).add_done_callback(partial(done, clock()))
        started += portion
        await asyncio.sleep(0)
    while tally.count + tally.failed < started:
        await asyncio.sleep(0.001)


async def _send_in_turn(producer: Producer, message: Message, options: argparse.Namespace, tally: LatencyRecorder) -> None:
    clock = time.perf_counter
    while not _over(tally.count + tally.failed, options, tally):
        began = clock()
        try:
            await producer.send(message)
        except Exception as error:
            tally.failure(error)
        else:
            tally.add(clock() - began, len(message.body))


async def _send_batches(producer: Producer, message: Message, options: argparse.Namespace, tally: LatencyRecorder) -> None:
    batch = [message] * options.batch

    async def keep_sending() -> None:
        while not _over(tally.count + tally.failed, options, tally):
            began = time.perf_counter()
            try:
                await producer.send_batch(batch)
            except Exception as error:
                tally.failure(error)
            else:
                tally.add(time.perf_counter() - began, len(message.body), options.batch)

    await asyncio.gather(*(keep_sending() for _ in range(max(1, min(options.in_flight // options.batch, 64)))))


def _sent(tally: LatencyRecorder, size: int, began: float, future: asyncio.Future[SendResult]) -> None:
    error = future.exception()
    if error is None:
        tally.add(time.perf_counter() - began, size)
    else:
        tally.failure(error)


async def _consume(options: argparse.Namespace, tally: LatencyRecorder) -> None:
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()

    def took(message: ReceivedMessage) -> None:
        tally.add(max(0.0, time.time() - message.store_ms / 1000), len(message.body))
        if options.messages is not None and tally.count >= options.messages:
            loop.call_soon_threadsafe(enough.set)

    async def took_on_loop(message: ReceivedMessage) -> None:
        took(message)

    consumer = PushConsumer(
        options.name_server,
        group=options.group,
        subscribe={options.topic: "*"},
        listener=took if options.threads else took_on_loop,
        start_from=POSITIONS.get(options.start, options.start),
        **client_keywords(options),
    )
    async with consumer:
        tally.start()
        try:
            async with asyncio.timeout(None if options.messages is not None else options.seconds):
                await enough.wait()
        except TimeoutError:
            pass
        tally.stop()


def _over(count: int, options: argparse.Namespace, tally: LatencyRecorder) -> bool:
    if options.messages is not None:
        return count >= int(options.messages)
    return tally.elapsed_s >= float(options.seconds)


async def _live(tally: LatencyRecorder) -> None:
    """A line that is written over each second; lines one after the other where there is no terminal."""
    terminal = sys.stderr.isatty()
    try:
        while True:
            await asyncio.sleep(1)
            line = tally.live()
            print(f"\r{line:<100}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)
    finally:
        if terminal:
            print(file=sys.stderr)
