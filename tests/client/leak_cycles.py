"""A program that makes clients, sends, consumes and closes them, over and over, and tells what it holds afterwards.

    python -m tests.client.leak_cycles NAME_SERVER CYCLES

Every cycle uses each client of the sync face and of the async one, and one that finds nobody to talk to. One line of JSON for
each sample: the cycle, resident memory, threads, descriptors, living objects of the client's classes.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path

import firearrow as fa
from firearrow import aio

TOPIC = "Cycles"
MESSAGES = 3
SAMPLES = 20
PATIENCE_S = 60


def main(name_server: str, cycles: int) -> None:
    for number in range(1, cycles + 1):
        sync_cycle(name_server)
        asyncio.run(async_cycle(name_server))
        failing_cycle()
        if number % max(1, cycles // SAMPLES) == 0:
            print(json.dumps(sample(number)), flush=True)


def sync_cycle(name_server: str) -> None:
    came = threading.Semaphore(0)

    def listen(_: fa.ReceivedMessage) -> None:
        came.release()

    with fa.Producer(name_server, group="cycles") as producer:
        for _ in range(MESSAGES):
            producer.send(fa.Message(TOPIC, b"sync"))
        producer.send_nowait(fa.Message(TOPIC, b"soon")).result(PATIENCE_S)
    with fa.PushConsumer(name_server, group="cycles-push", subscribe={TOPIC: "*"}, listener=listen, start_from="earliest"):
        for _ in range(MESSAGES + 1):
            assert came.acquire(timeout=PATIENCE_S), "a message did not come"
    with fa.PullConsumer(name_server, group="cycles-pull", topics=[TOPIC], start_from="earliest") as consumer:
        left = MESSAGES + 1
        while left > 0:
            left -= len(consumer.poll(timeout=PATIENCE_S))
        consumer.commit()


async def async_cycle(name_server: str) -> None:
    came = asyncio.Semaphore(0)

    async def listen(_: fa.ReceivedMessage) -> None:
        came.release()

    async with asyncio.timeout(PATIENCE_S):
        async with aio.Producer(name_server, group="cycles") as producer:
            await asyncio.gather(*(producer.send(fa.Message(TOPIC, b"async")) for _ in range(MESSAGES)))
        async with aio.PushConsumer(
            name_server, group="cycles-push", subscribe={TOPIC: "*"}, listener=listen, start_from="earliest"
        ):
            for _ in range(MESSAGES):
                await came.acquire()
        async with aio.PullConsumer(name_server, group="cycles-pull", topics=[TOPIC], start_from="earliest") as consumer:
            left = MESSAGES
            async for _ in consumer:
                left -= 1
                if not left:
                    break
            await consumer.commit()


def failing_cycle() -> None:
    """Nobody is at that address."""
    with fa.Producer("127.0.0.1:1", group="cycles") as producer:
        try:
            producer.send(fa.Message(TOPIC, b"nowhere"), timeout=1)
        except fa.FirearrowError:
            return
    raise AssertionError("a message was sent to nobody")


def sample(number: int) -> dict[str, object]:
    gc.collect()
    kinds = Counter(type(one).__name__ for one in gc.get_objects() if str(type(one).__module__).startswith("firearrow."))
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "cycle": number,
        "rss_kb": resident_pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "objects": dict(kinds),
    }


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
