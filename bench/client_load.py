"""Our client as a program, for bench/client.py: python -m bench.client_load send|consume|sync ... (see `main`).

`send` and `consume` run until they are ended: they are observed at the broker. `sync` prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import firearrow as fa
from firearrow import aio
from firearrow.net.event_loop import run

IN_FLIGHT = 1_000
PORTION = 64  # sends between two turns of the loop


def main(words: list[str]) -> None:
    name_server, topic = words[1:3]
    if words[0] == "send":
        run(send(name_server, topic, int(words[3])))
    elif words[0] == "consume":
        consume(name_server, topic, words[3])
    else:
        sync(name_server, topic, int(words[3]), float(words[4]), float(words[5]))


async def send(name_server: str, topic: str, size: int) -> None:
    """Send with up to IN_FLIGHT messages in flight, and wait for every result."""
    failures: list[BaseException] = []

    def done(future: asyncio.Future[fa.SendResult]) -> None:
        error = future.exception()
        if error is not None:
            failures.append(error)

    body = b"x" * size
    async with aio.Producer(name_server, group="bench_producer", max_in_flight=IN_FLIGHT) as producer:
        while not failures:
            await producer.wait_for_capacity()
            for _ in range(PORTION):
                producer.send_nowait(fa.Message(topic, body)).add_done_callback(done)
            await asyncio.sleep(0)
    raise failures[0]


def consume(name_server: str, topic: str, group: str) -> None:
    """Listener equivalent to that of Apache's benchmark: counts messages and sums their age."""
    count = born_ms = store_ms = longest_ms = 0

    def listen(message: fa.ReceivedMessage) -> None:
        nonlocal count, born_ms, store_ms, longest_ms
        now = time.time_ns() // 1_000_000
        count += 1
        born_ms += now - message.born_ms
        age_ms = now - message.store_ms
        store_ms += age_ms
        if age_ms > longest_ms:
            longest_ms = age_ms

    with fa.PushConsumer(name_server, group=group, subscribe={topic: "*"}, listener=listen) as consumer:
        consumer.run()


def sync(name_server: str, topic: str, size: int, warm_s: float, seconds: float) -> None:
    body = b"x" * size
    with fa.Producer(name_server, group="bench_sync_producer") as producer:
        _send_in_turn(producer, topic, body, warm_s)
        latencies = sorted(_send_in_turn(producer, topic, body, seconds))
    count = len(latencies)
    figures = {"messages": count, "p50_us": latencies[count // 2] / 1e3, "p99_us": latencies[count * 99 // 100] / 1e3}
    print(json.dumps(figures))


def _send_in_turn(producer: fa.Producer, topic: str, body: bytes, seconds: float) -> list[int]:
    latencies: list[int] = []
    clock = time.perf_counter_ns
    end = clock() + int(seconds * 1e9)
    while (began := clock()) < end:
        producer.send(fa.Message(topic, body))
        latencies.append(clock() - began)
    return latencies


if __name__ == "__main__":
    main(sys.argv[1:])
