"""Our client as a program, for bench/spark.py: python -m bench.spark_client pipelined|batches NAME_SERVER TOPIC MESSAGES SIZE

Sends application-like messages (an incompressible JSON body, a key, one of 8 tags, two properties), waits for every
acknowledgement, and prints one line of JSON with the number of messages, the seconds and the CPU time.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterator
from itertools import islice

import firearrow as fa
from firearrow import aio
from firearrow.net.event_loop import run

IN_FLIGHT = 1_000
PORTION = 64  # sends between two turns of the loop
BATCH = 200  # messages, as the sink sends them
BATCHES_UNDER_WAY = 8


def main(words: list[str]) -> None:
    way, name_server, topic, count, size = words
    seconds, cpu_s = run({"pipelined": pipelined, "batches": batches}[way](name_server, topic, int(count), int(size)))
    print(json.dumps({"messages": int(count), "seconds": seconds, "cpu_s": cpu_s}))


def messages(topic: str, count: int, size: int) -> Iterator[fa.Message]:
    chance = random.Random(1)
    bodies = [_body(chance, number, size) for number in range(4_096)]  # one would be a dictionary entry in a Parquet file
    for number in range(count):
        yield fa.Message(
            topic,
            b"%010d" % number + bodies[number & 4_095],
            keys=[f"order-{number}"],
            tags=f"tag-{number & 7}",
            properties={"region": f"region-{number % 13}", "traceparent": f"{number * 2_654_435_761 & 0xFFFFFFFFFFFF:024x}"},
        )


def _body(chance: random.Random, number: int, size: int) -> bytes:
    head = f'{{"customer":{number},"items":"'.encode()
    return head + chance.randbytes(size // 2).hex().encode()[: max(0, size - 10 - len(head) - 2)] + b'"}'


async def pipelined(name_server: str, topic: str, count: int, size: int) -> tuple[float, float]:
    async with aio.Producer(name_server, group="bench_spark", max_in_flight=IN_FLIGHT) as producer:
        await producer.send(next(messages(topic, 1, size)))  # the route is known then
        sent: list[asyncio.Future[fa.SendResult]] = []
        began, cpu_s = time.perf_counter(), time.process_time()
        for number, message in enumerate(messages(topic, count, size)):
            if not number % PORTION:
                await producer.wait_for_capacity()
                await asyncio.sleep(0)
            sent.append(producer.send_nowait(message))
        await asyncio.gather(*sent)
        return time.perf_counter() - began, time.process_time() - cpu_s


async def batches(name_server: str, topic: str, count: int, size: int) -> tuple[float, float]:
    async with aio.Producer(name_server, group="bench_spark") as producer:
        await producer.send(next(messages(topic, 1, size)))
        waiting = messages(topic, count, size)
        began, cpu_s = time.perf_counter(), time.process_time()

        async def sends() -> None:
            while part := list(islice(waiting, BATCH)):
                await producer.send_batch(part)

        await asyncio.gather(*(sends() for _ in range(BATCHES_UNDER_WAY)))
        return time.perf_counter() - began, time.process_time() - cpu_s


if __name__ == "__main__":
    main(sys.argv[1:])
